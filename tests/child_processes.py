"""Child processes of tests, forked from one process that has imported what they need.

A spawned process imports everything again, which keeps a core busy for a second or two. The process
that these are forked from starts with the first child and runs no threads. Its environment is that
of the moment: hand to a child what it shall know.
"""

from __future__ import annotations

from multiprocessing import get_context

CHILDREN = get_context("forkserver")
CHILDREN.set_forkserver_preload(
    [
        "tests.contract.racing",
        "tests.contract.outbox_world",
        "tidegate.engines.dynamodb",
        "tidegate.engines.postgres",
        "tidegate.engines.sqlite",
        "tidegate.commands.startup",
    ]
)
