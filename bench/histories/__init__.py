"""Concurrent clients on every engine: `python -m bench histories`. Each history is checked offline.

Clients in threads and processes write down what they asked and what they were told. The checker
replays the accepted commits in the order of their positions against a pure model, and looks for
what concurrent clients must never see. Half of the trials run with every memory, cache and page of
the engines so small that it forgets all the time.

The checkers and the clients are those of ``tests/differential``, which proves them with planted
anomalies.
"""
