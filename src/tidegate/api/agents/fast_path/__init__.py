"""The agents' two hot requests, answered at the socket instead of through the whole application.

    protocol    a connection that finds plain requests of agents and answers them in one write
    handlers    what a poll and a single report are answered with

A route offers a fast handler beside its usual one (``Route.fast``). Whatever is not plain goes the
usual way, and every answer is the same. The setting ``fast_path`` switches it off.
"""
