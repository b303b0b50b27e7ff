"""``tidegate agent``: the agent of this host, until it is told to stop."""

from __future__ import annotations

import click

from tidegate.cli.exit_codes import CommandExit, exit_code_of
from tidegate.errors import TidegateError


@click.command()
@click.option("--config", "file", required=True, metavar="FILE", help="Its settings, TOML.")
@click.option("--token-file", metavar="FILE", help="Holds a one-time token, for the first start.")
@click.option("--state", metavar="DIR", help="In place of the file's.")
def agent(file: str, token_file: str | None, state: str | None) -> None:
    """Run what the server orders on this host, watch it, and go back by itself.

    The first start enrolls the host, by a one-time token in the file or in TIDEGATE_AGENT_TOKEN;
    later starts need none. A signal (INT or TERM) ends it; the next start resumes from there.
    """
    from tidegate.agent.command import run
    from tidegate.agent.errors import NotEnrolled, RefusedByServer

    try:
        run(file, token_file, state)
    except TidegateError as error:
        # What helps is at the agent's own settings, or with who gives out its tokens.
        asks = isinstance(error, RefusedByServer | NotEnrolled)
        tries = ("tidegate host enroll …",) * asks + ("tidegate agent --help",)
        raise CommandExit(exit_code_of(error), f"{error.detail} [{error.code}]", *tries) from None
