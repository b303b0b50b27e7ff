"""Command groups that import their commands on demand, so that help and completion are fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Lazy = tuple[str, str]  # module:attribute of a command, one line of help


# Verbs that people try, and the commands that do it.
TRIED: Final = {
    "host delete": "host retire HOST",
    "log read": "log tail",
    "rollout promote": "channel promote CHANNEL RELEASE",
    "rollout rollback": "channel rollback CHANNEL",
    "token revoke": "token delete TOKEN",
    "user delete": "user erase USER",
    "user revoke": "user grant USER ROLE --take",
}


class ReaderGone(Exception):
    """The reader of our output has closed the pipe."""


class LazyGroup(click.Group):
    """A group that knows the import path and one line of help of each member.

    ``sections`` are the headings of the help, each with its commands in order.
    """

    def __init__(
        self, *, lazy: Mapping[str, Lazy], sections: Mapping[str, Sequence[str]], **rest: Any
    ) -> None:
        super().__init__(**rest)
        self._lazy = dict(lazy)
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for names in self._sections.values() for name in names]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        name: str,
    ) -> click.Command | None:
        if name not in self.commands and name in self._lazy:
            self.commands[name] = _load(self._lazy[name][0])
        return self.commands.get(name)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        for heading, names in self._sections.items():
            if names:
                with formatter.section(heading):
                    formatter.write_dl([(name, self._lazy[name][1]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=self._lazy[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return resolve(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None  # click would report it as an error


def resolve(
    group: click.Group, ctx: click.Context, args: list[str]
) -> tuple[str | None, click.Command | None, list[str]]:
    """Find the member that the first argument names.

    Raises:
        UsageError: there is none; the message suggests a similar name.
    """
    name = args[0]
    command = group.get_command(ctx, name)
    if command is None:
        if name.startswith("-"):
            raise click.NoSuchOption(name, ctx=ctx)
        ctx.fail(f"there is no {name!r} under {ctx.command_path}{_meant(group, ctx, name)}")
    return command.name, command, args[1:]


def _meant(group: click.Group, ctx: click.Context, name: str) -> str:
    from difflib import get_close_matches

    tried = TRIED.get(f"{ctx.info_name} {name}")
    if tried is not None:
        return f": that is tidegate {tried}"
    names = group.list_commands(ctx)
    begun = [known for known in names if known.startswith(f"{name}-")]
    close = begun or get_close_matches(name, names)
    return f": did you mean {close[0]!r}?" if close else ""


def _load(where: str) -> click.Command:
    from importlib import import_module

    module, _, attribute = where.partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, click.Command), f"{where} is no command"
    return found
