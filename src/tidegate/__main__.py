"""``tidegate`` and ``python -m tidegate``: every command, each imported when it is called.

The commands that run on this machine import ``tidegate.main``, which is slow. So they are listed
here by module and name, and help, completion and the commands that call a server never import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from tidegate.cli import app

_HERE: Final = "tidegate.commands"
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": (f"{_HERE}.serve:serve", "Serve the API, the dashboard and the worker."),
    "worker": (f"{_HERE}.serve:worker", "Run the worker: orders, timers, outbox, archive."),
    "agent": (f"{_HERE}.agent:agent", "Run what the server orders on this host."),
    "doctor": (f"{_HERE}.maintenance:doctor", "Check an installation, and say what to do."),
    "backup": (f"{_HERE}.maintenance:backup", "Take a backup of everything."),
    "restore": (f"{_HERE}.maintenance:restore", "Restore a backup; this begins a new epoch."),
    "views": (f"{_HERE}.views:views", "Verify derived rows against the log, or rebuild them."),
    "archive": (f"{_HERE}.archive:archive", "Verify the copy of the log, or rebuild it."),
    "simulate": (f"{_HERE}.simulate:simulate", "Forecast a rollout on a channel."),
    "demo": (f"{_HERE}.demo:demo", "Run an installation with a simulated fleet, to try."),
}


def main() -> NoReturn:
    """Run the command that the arguments name, and exit."""
    app(COMMANDS)


if __name__ == "__main__":
    main()
