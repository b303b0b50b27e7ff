"""The format of an agent's state directory: which agent versions can read it.

<state>/format   one decimal number and a newline, written before anything else

The files in the directory do not say how to read their digests and records. So an agent of another
format refuses the directory and changes nothing in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.agent import durable_files, errors

# Increase it when an agent of the previous number would misread the directory.
# 2: content digests of domain/content. Agents before that wrote no number.
STATE_FORMAT: Final = 2
FILE: Final = "format"
# Files of an agent. A directory with one of them but no format is from an older agent.
LEFT: Final = ("key", "identity.json", "journal", "running.json")


def check_format(state: Path) -> None:
    """Write our format into a new state directory; check that of an existing one.

    Raises:
        StateFormatRefused: an older or newer agent wrote it, or the format file is damaged.
    """
    try:
        text = (state / FILE).read_text("ascii", "replace")
    except FileNotFoundError:
        if any((state / name).exists() for name in LEFT):
            raise _older(state) from None
        durable_files.replace_file(state / FILE, f"{STATE_FORMAT}\n".encode())
        return
    number = text.removesuffix("\n")
    if not number.isdecimal():
        raise errors.StateFormatRefused(
            f"{state / FILE} is damaged: it holds a number and a newline, found {text[:20]!a};"
            " look at the disk"
        )
    if int(number) < STATE_FORMAT:
        raise _older(state)
    if int(number) > STATE_FORMAT:
        raise errors.StateFormatRefused(f"{state} was written by a newer agent: upgrade this one")


def _older(state: Path) -> errors.StateFormatRefused:
    return errors.StateFormatRefused(
        f"{state} was written by an older agent, whose digests this one would misread: move the"
        " directory away and start the agent with a new one-time token (tidegate host enroll)"
    )
