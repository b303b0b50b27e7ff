"""The fast path for the two frequent requests of agents, answered at the socket.

    protocol    a connection that finds plain requests of agents and answers them in one write
    handlers    the responses to a poll and to a single report

A route has a fast handler in addition to its usual one (``Route.fast``). Any other request takes
the
usual path through the application, and every response is the same. The setting ``fast_path`` turns
it off.
"""
