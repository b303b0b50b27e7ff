"""Notifications at work: the notifier fills the queues, the sender empties them.

    log ──▶ notifier ──▶ queue of each subscription ──▶ sender ──▶ target
            facts become notices                        first in, first out

Both run in the process that leads the job. Each of their commits checks the lease.
"""
