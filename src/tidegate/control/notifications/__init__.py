"""Notifications: the notifier fills the queues, the sender empties them.

    log ──▶ notifier ──▶ queue of each subscription ──▶ sender ──▶ target
            facts become notices                        first in, first out

Both run in the leading process. Each of their commits checks the lease.
"""
