"""``tidegate agent``: the agent of this host, until it is told to stop."""

from __future__ import annotations

import click


@click.command()
@click.option("--config", "file", required=True, metavar="FILE", help="Its settings, TOML.")
@click.option("--token-file", metavar="FILE", help="Holds a one-time token, for the first start.")
@click.option("--state", metavar="DIR", help="In place of the file's.")
def agent(file: str, token_file: str | None, state: str | None) -> None:
    """Run what the server orders on this host, watch it, and go back by itself.

    The first start enrolls the host, by a one-time token in the file or in TIDEGATE_AGENT_TOKEN;
    later starts need none. A signal (INT or TERM) ends it; the next start goes on from there.
    """
    from tidegate.agent.command import run

    run(file, token_file, state)
