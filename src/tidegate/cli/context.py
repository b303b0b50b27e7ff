"""The context of every command: the shared flags, the client, and printing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar

import click

from tidegate.cli.lazy_groups import resolve as resolve_member

if TYPE_CHECKING:  # imported where they are used, because help needs none of them
    from tidegate.cli.client import ApiClient, ServerResponse
    from tidegate.cli.output import Cell, Column, Item
    from tidegate.cli.profile import Profile
    from tidegate.cli.user_names import UserNames

SENTENCE_CHARS_MAX: Final = 500
FORMATS: Final = ("table", "json", "jsonl")

P = ParamSpec("P")
R = TypeVar("R")


class CommandContext:
    """The flags that all commands share, and the objects built from them."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.token: str | None = None
        self.output = "table"
        self.break_glass = False
        self.dry_run = False

    @cached_property
    def profile(self) -> Profile:
        from tidegate.cli.profile import resolve

        return resolve(self.url, self.token)

    @cached_property
    def client(self) -> ApiClient:
        from tidegate.cli.client import ApiClient

        return ApiClient(self.profile)

    @cached_property
    def people(self) -> UserNames:
        from tidegate.cli.user_names import UserNames

        return UserNames(self.client)

    def bypass_approval(self, reason: str | None) -> None:
        """Bypass the approval of a protected channel. Raises: CommandExit: without a reason."""
        from tidegate.cli.exit_codes import CommandExit, ExitCode

        if not reason or not reason.strip():
            from tidegate.cli.hints import type_again

            raise CommandExit(
                ExitCode.USAGE, "--break-glass needs a reason", type_again("--reason …")
            )
        self.client.break_glass = reason

    def rehearse(self, run: Callable[[], object]) -> NoReturn:
        """Run a command with a dry run as its first write, print the result, and exit."""
        from tidegate.cli.dry_run import DryRunAnswered, print_dry_run

        self.client.dry_run = True
        try:
            run()
        except DryRunAnswered as ended:
            print_dry_run(self, ended.answer)
        click.get_current_context().exit()

    # ── requests ──

    def get(self, path: str, **query: Any) -> Any:
        """GET a JSON document."""
        return self.client.get(path, query).json()

    def warn_of_scopes(self, scopes: Iterable[str]) -> None:
        """Print to stderr which channels of the scopes do not exist."""
        from tidegate.cli.output import note
        from tidegate.cli.suggestions import warn_of_scopes

        if self.is_for_people:
            for warning in warn_of_scopes(self.client, scopes):
                note(warning)

    def etag_of(self, path: str, version: int | None) -> str | None:
        """The ETag for a write: of the given version, or of the current one."""
        return f'"{version}"' if version is not None else self.client.get(path).etag

    # ── printing ──

    def list(
        self, items: Iterable[Item], columns: Sequence[Column], *, empty: str = "nothing"
    ) -> None:
        from tidegate.cli.output import print_list

        if self.is_for_people:
            items = [*items]
            columns = self._named(items, columns)
        print_list(self.output, items, columns, empty=empty)

    def _named(self, items: Sequence[Item], columns: Sequence[Column]) -> Sequence[Column]:
        """Show the names of people in the columns, where they are known."""
        if not any(column.is_person for column in columns):
            return columns
        return self.people.named(items, columns)

    def print_items(
        self,
        ask: Callable[[], Any],
        columns: Sequence[Column],
        *,
        watch: bool,
        empty: str = "nothing",
    ) -> None:
        """Print a list; with ``watch``, print it again whenever it changes."""
        if not watch:
            self.list(ask(), columns, empty=empty)
            return
        from tidegate.cli.live_view import follow, list_lines

        def drawn(items: Sequence[Item]) -> Any:
            return list_lines(self._named(items, columns), items)

        follow(ask, drawn, output=self.output)

    def print_object(
        self,
        ask: Callable[[], Any],
        fields: Callable[[Any], Sequence[tuple[str, Cell]]],
        *,
        watch: bool,
    ) -> None:
        """Print one object; with ``watch``, print it again whenever it changes."""
        if not watch:
            found = ask()
            self.card(found, fields(found))
            return
        from tidegate.cli.live_view import card_lines, follow

        follow(ask, lambda found: card_lines(fields(found)), output=self.output)

    def one_of(
        self, items: Iterable[Item], member: str, id: str, columns: Sequence[Column], what: str
    ) -> None:
        """Print one item of a list as a card. Raises: CommandExit: it is not in the list."""
        from tidegate.cli.exit_codes import CommandExit, ExitCode

        for item in items:
            if str(item.get(member)) == id:
                self.card(item, [(column.title.lower(), column.cell(item)) for column in columns])
                return
        noun = what.split()[-1]
        raise CommandExit(ExitCode.NOT_FOUND, f"there is no {what} {id!r}", f"tidegate {noun} list")

    def card(self, document: Any, fields: Sequence[tuple[str, Cell]]) -> None:
        from tidegate.cli.output import print_card

        print_card(self.output, document, fields)

    def done(self, answer: ServerResponse | Any, line: str) -> None:
        from tidegate.cli.output import print_done

        document = answer if isinstance(answer, dict | list) else answer.json()
        print_done(self.output, document, line)

    def done_or_not(self, answer: ServerResponse, line: str) -> None:
        """Print a completed change, or the warnings that say that nothing was changed."""
        warnings = answer.json().get("warnings") if self.is_for_people else None
        if not warnings:
            self.done(answer, line)
            return
        from tidegate.cli.output import NOTHING, say
        from tidegate.cli.symbols import clean

        for warning in warnings:
            say(f"{NOTHING} {clean(warning)}")

    def warn(self, answer: ServerResponse | Any) -> None:
        """Print the warnings of a response to stderr."""
        from tidegate.cli.output import note
        from tidegate.cli.symbols import clean

        document = answer if isinstance(answer, dict) else answer.json()
        for warning in document.get("warnings") or ():
            note(f"warning: {clean(warning)}")

    @property
    def is_for_people(self) -> bool:
        return self.output == "table"


def _save_option(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        setattr(ctx.ensure_object(CommandContext), param.name or "", value)


def shared_options() -> list[click.Parameter]:
    """The flags that may be given before the noun or after the verb."""
    return [
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            help="How to print: a table, JSON, or a line of JSON per item.",
            expose_value=False,
            callback=_save_option,
        ),
        click.Option(
            ["--url"],
            metavar="URL",
            help="The server. Default: TIDEGATE_URL, then the one that login saved.",
            expose_value=False,
            callback=_save_option,
        ),
        click.Option(
            ["--token"],
            metavar="TOKEN",
            help="The API token. Default: TIDEGATE_TOKEN, then the one that login saved.",
            expose_value=False,
            callback=_save_option,
        ),
    ]


class VerbCommand(click.Command):
    """A command that also takes the shared flags."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.params += shared_options()


class LocalCommand(click.Command):
    """A command of this machine that prints results: it takes ``--output``."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.params += [option for option in shared_options() if option.name == "output"]


def output_format() -> str:
    """How the current command prints: table, json or jsonl."""
    return click.get_current_context().ensure_object(CommandContext).output


class Group(click.Group):
    """A group of commands, listed in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands with their first sentence in full; click would cut it."""
        found = [self.commands[name] for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (str(command.name), command.get_short_help_str(SENTENCE_CHARS_MAX))
                    for command in found
                    if not command.hidden
                ]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return resolve_member(self, ctx, args)


class NounGroup(Group):
    """A group of verbs, which take the shared flags."""

    command_class = VerbCommand


def with_context(verb: Callable[Concatenate[CommandContext, P], R]) -> Callable[P, R]:
    """Pass the context to a command as its first argument."""

    def handed(*args: P.args, **rest: P.kwargs) -> R:
        context = click.get_current_context().ensure_object(CommandContext)
        if context.break_glass:
            context.bypass_approval(click.get_current_context().params.get("reason"))
        from tidegate.cli.exit_codes import CommandExit, ExitCode

        try:
            if context.dry_run:
                context.rehearse(lambda: verb(context, *args, **rest))
            return verb(context, *args, **rest)
        except CommandExit as stop:
            if not context.is_for_people or stop.code is not ExitCode.NOT_FOUND:
                raise
            from tidegate.cli.suggestions import with_suggestion

            raise with_suggestion(context.client, stop) from None

    handed.__doc__ = verb.__doc__
    handed.__name__ = verb.__name__
    if hasattr(verb, "__click_params__"):
        handed.__click_params__ = verb.__click_params__  # type: ignore[attr-defined]
    return handed


# ── flags that several verbs have ─────────────────────────────────────────────────────────────────

F = TypeVar("F", bound=Callable[..., Any])


class WordChoice(click.Choice[str]):
    """A choice of words that ignores case and treats hyphens and underscores alike."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        wanted = _plain(str(value))
        known = next((word for word in self.choices if _plain(word) == wanted), value)
        return super().convert(known, param, ctx)


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")


def break_glass_option(verb: F) -> F:
    """``--break-glass``: on a protected channel, do it at once and alone."""
    return click.option(
        "--break-glass",
        is_flag=True,
        expose_value=False,
        callback=_save_flag,
        help="On a protected channel: do it at once, without approval. It needs the permission "
        "emergency and a reason, and another person reviews it.",
    )(verb)


def dry_run_option(verb: F) -> F:
    """``--dry-run``: show what it would record, and change nothing."""
    return click.option(
        "--dry-run",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_save_flag,
        help="Decide it, show what it would record, and change nothing.",
    )(verb)


def _save_flag(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    setattr(ctx.ensure_object(CommandContext), str(param.name), value)


def version_option(verb: F) -> F:
    """``--version``: change it only if it is still as you saw it."""
    return click.option(
        "--version",
        type=click.IntRange(min=0),
        metavar="N",
        help="Only if it is still at this version. Default: the current version.",
    )(verb)


def start_option(verb: F) -> F:
    """``--start-at``: when the first order may be sent."""
    return click.option(
        "--start-at",
        metavar="TIME",
        help="Send no order before: 2026-12-24T02:00:00+01:00, or in 3h.",
    )(verb)


def watch_option(verb: F) -> F:
    """``--watch``: show it again whenever it changes."""
    return click.option(
        "--watch", is_flag=True, help="Redraw it in place as it changes; on a pipe, print changes."
    )(verb)


class ReasonOption(click.Option):
    """A required option that is optional with a certain flag, because nothing is written then.

    The flag must be eager, so that click reads it first. It is an option of the command, or one
    that the context keeps.
    """

    def __init__(self, *args: Any, unless: str = "", **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.unless = unless

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            kept = ctx.ensure_object(CommandContext)
            if self.unless and (ctx.params.get(self.unless) or getattr(kept, self.unless, False)):
                return None
            raise


def reason(*, required: bool, unless: str = "") -> Callable[[F], F]:
    """``--reason``: the reason, for the log. ``unless``: the flag that makes it optional."""
    help_text = (
        "The reason. It is recorded in the log." if required else "A reason to record in the log."
    )
    if unless:
        help_text += f" Not needed with --{unless.replace('_', '-')}."
    return click.option(
        "--reason", required=required, help=help_text, cls=ReasonOption, unless=unless
    )
