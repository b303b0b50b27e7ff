"""Every command of `tidegate`, found by walking the groups."""

from __future__ import annotations

import click

from tidegate.__main__ import COMMANDS as TABLE
from tidegate.cli.root import root


def commands() -> dict[str, click.Command]:
    """Every command that is not a group, by its full name."""
    group = root(TABLE)
    ctx = click.Context(group, info_name="tidegate")
    found: dict[str, click.Command] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                found[name] = command
            found |= {f"{name} {verb}": member for verb, member in command.commands.items()}
        else:
            found[name] = command
    return found


COMMANDS = commands()
