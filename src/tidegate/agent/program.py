"""``tidegate-agent``: the agent as its own program, without the dependencies of a server.

It has the options of ``tidegate agent``, parsed with the standard library.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from tidegate import __version__, errors
from tidegate.agent import command, install_report

REFUSED, USAGE, CONFLICT, UNAVAILABLE = 1, 2, 3, 6  # exit codes as of `tidegate agent`


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of these arguments; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        if given.verb == "install":
            for line in install_report.install(
                program=(_own_path(),),
                is_user=given.user,
                is_dry=given.dry_run,
                server=given.server,
                channels=tuple(given.channel),
                writable=tuple(given.writable),
                run_as=given.run_as,
            ):
                sys.stdout.write(f"{line}\n")
        elif given.config is None:
            raise errors.Invalid("say --config FILE, or: tidegate-agent install --help")
        else:
            command.run(given.config, given.token_file, given.state)
    except errors.TidegateError as error:
        sys.stderr.write(f"{error.detail} [{error.code}]\n")
        if isinstance(error, errors.Invalid):
            sys.stderr.write("  try: tidegate-agent --help\n")
        return exit_code_of(error)
    return 0


def exit_code_of(error: errors.TidegateError) -> int:
    if isinstance(error, errors.Invalid):
        return USAGE
    if isinstance(error, errors.Conflict):
        return CONFLICT
    return UNAVAILABLE if isinstance(error, errors.Unavailable) else REFUSED


def _own_path() -> str:
    return str(Path(which(sys.argv[0]) or sys.argv[0]).absolute())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate-agent",
        description="Run the agent of this host: switch releases, probe, roll back on failure.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--config", metavar="FILE", help="The agent's settings, TOML.")
    parser.add_argument(
        "--token-file", metavar="FILE", help="A file with a one-time token, for the first start."
    )
    parser.add_argument(
        "--state", metavar="DIR", help="The state directory; default: that of the settings."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    adding = verbs.add_parser("install", help="Write a systemd unit and settings; start nothing.")
    adding.add_argument("--server", default="", metavar="URL", help="For new settings.")
    adding.add_argument(
        "--channel", action="append", default=[], metavar="NAME=DIR", help="For new settings."
    )
    adding.add_argument(
        "--writable",
        action="append",
        default=[],
        metavar="DIR",
        help="Default: as in the existing unit.",
    )
    adding.add_argument(
        "--run-as", default="", metavar="USER", help="Default: as in the existing unit, or root."
    )
    adding.add_argument("--user", action="store_true", help="A service of yours, without root.")
    adding.add_argument("--dry-run", action="store_true", help="Print it, and write nothing.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
