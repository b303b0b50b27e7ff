"""``tidegate agent``: run the agent of this host, or install it."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import which

import click

from tidegate.cli import exit_codes, output
from tidegate.errors import TidegateError


@click.group(invoke_without_command=True, subcommand_metavar="[install]")
@click.option("--config", "file", metavar="FILE", help="The agent's settings, TOML; needed to run.")
@click.option(
    "--token-file", metavar="FILE", help="A file with a one-time token, for the first start."
)
@click.option("--state", metavar="DIR", help="The state directory; default: that of the settings.")
@click.pass_context
def agent(ctx: click.Context, file: str | None, token_file: str | None, state: str | None) -> None:
    """Run the agent of this host: switch releases, probe, roll back on failure.

    The first start enrolls the host with a one-time token, from the file or TIDEGATE_AGENT_TOKEN;
    later starts need none. INT or TERM ends the agent; the next start resumes its work.
    """
    if ctx.invoked_subcommand is not None:
        return
    if file is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "say --config FILE to run the agent",
            "tidegate agent --help",
            "tidegate agent install --help",
        )
    from tidegate.agent.command import run
    from tidegate.agent.errors import NotEnrolled, RefusedByServer

    try:
        run(file, token_file, state)
    except TidegateError as error:
        # Suggest a new token if the server refused the agent, and the options otherwise.
        asks = isinstance(error, RefusedByServer | NotEnrolled)
        tries = ("tidegate host enroll …",) * asks + ("tidegate agent --help",)
        raise exit_codes.CommandExit(
            exit_codes.exit_code_of(error), f"{error.detail} [{error.code}]", *tries
        ) from None


@agent.command("install")
@click.option("--server", default="", metavar="URL", help="The server, for new settings.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    metavar="NAME=DIR",
    help="A channel and the directory of its releases, for new settings. Repeatable.",
)
@click.option(
    "--writable",
    multiple=True,
    metavar="DIR",
    help="An additional directory that programs of the agent may write to; default: those of the"
    " existing unit. Repeatable.",
)
@click.option(
    "--run-as",
    default="",
    metavar="USER",
    help="The user of the service; default: that of the existing unit, or root.",
)
@click.option("--user", is_flag=True, help="Install a service of your own, without root.")
@click.option("--dry-run", is_flag=True, help="Print the files, and write nothing.")
def install(
    server: str,
    channels: tuple[str, ...],
    writable: tuple[str, ...],
    run_as: str,
    user: bool,
    dry_run: bool,
) -> None:
    """Write a systemd unit and settings for the agent of this host.

    It keeps existing settings, starts nothing, and prints what to do next.
    """
    from tidegate.agent.install_report import install as install_agent

    path = str(Path(which(sys.argv[0]) or sys.argv[0]).absolute())
    try:
        for line in install_agent(
            program=(path, "agent"),
            is_user=user,
            is_dry=dry_run,
            server=server,
            channels=channels,
            writable=writable,
            run_as=run_as,
        ):
            output.say(line)
    except TidegateError as error:
        tries = ("tidegate agent install --help",)
        raise exit_codes.CommandExit(
            exit_codes.exit_code_of(error), f"{error.detail} [{error.code}]", *tries
        ) from None
