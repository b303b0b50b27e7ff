"""Concurrent clients on every engine: `python -m bench histories`. Each history is checked offline.

Clients in threads and processes record their requests and the responses. The checker replays the
accepted commits in the order of their positions against a pure model, and looks for anomalies that
concurrent clients must never see. Half of the trials run with every memory, cache and page of the
engines so small that entries are evicted all the time.

The checkers and the clients are those of ``tests/differential``, which proves them with planted
anomalies.
"""
