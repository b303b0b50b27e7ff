"""Child processes of tests, forked from one process that has imported what they need.

A spawned process imports everything again, which takes a core a second or two. The process that
these are forked from starts with the first child and runs no threads. Its environment is that of
this moment, so pass to a child whatever it must know.
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
