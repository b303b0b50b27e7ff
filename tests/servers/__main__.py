"""Start real servers for benches: `python -m tests.servers [postgres|dynamodb|s3]`.

It starts the named servers or all, prints `kind URL` for each, and keeps them until interrupted.
With `--durable` PostgreSQL keeps fsync on. `fetch` only fetches what a later start needs, while
there is a network.
"""

from __future__ import annotations

import argparse
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.servers import dynamodb, node, postgres, shared


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="kind", choices=[*shared.KINDS, "fetch", []])
    parser.add_argument("--durable", action="store_true", help="PostgreSQL with fsync on")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.kinds == ["fetch"]:
        print(dynamodb.fetch())
        print(node.fetch())
    elif asked.run:
        shared.keep(asked.kinds[0], asked.run)
    else:
        serve(asked.kinds or list(shared.KINDS), durable=asked.durable)


def serve(kinds: list[str], *, durable: bool) -> None:
    """Run the servers in the foreground, until SIGINT or SIGTERM."""
    shared.stop_on_sigterm()
    with suppress(KeyboardInterrupt), ExitStack() as servers:
        for kind in kinds:
            server = (
                postgres.running(durable=durable) if kind == "postgres" else shared.KINDS[kind]()
            )
            print(kind, servers.enter_context(server), flush=True)
        signal.pause()


main()
