"""Budgets: how many hosts may be disrupted at once, whatever rolls out."""

from __future__ import annotations

import click

from tidegate.cli.completion import names
from tidegate.cli.context import CommandContext, NounGroup, watch_option, with_context
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.output import Column, Item, column, text
from tidegate.cli.paths import at

BUDGETS = names("/v1/budgets", "budget_id")


def format_bound(item: Item) -> str:
    """A number, a share of the hosts, or the smaller of both."""
    number, share = item.get("max_in_flight"), item.get("max_in_flight_pct")
    said = [text(number)] if number is not None else []
    if share is not None:
        said.append(f"{share} %")
    return text(said)


COLUMNS = (
    column("BUDGET", "budget_id"),
    column("HOSTS", "selector"),
    Column("AT MOST", format_bound),
    column("TAKEN", "in_flight"),
)


@click.group(cls=NounGroup)
def budget() -> None:
    """How many hosts may be disrupted at once."""


@budget.command("create")
@click.argument("budget_id", shell_complete=BUDGETS)
@click.option("--hosts", "selector", required=True, help="The hosts that match this selector.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="How many at once.")
@click.option(
    "--max-percent",
    "share",
    type=click.IntRange(1, 100),
    metavar="N",
    help="What share of them at once. With both, the smaller one counts.",
)
@with_context
def set_one(
    context: CommandContext, budget_id: str, selector: str, most: int | None, share: int | None
) -> None:
    """Limit how many of some hosts may be in flight at once."""
    if most is None and share is None:
        raise CommandExit(
            ExitCode.USAGE, "say --max, --max-percent or both", "tidegate budget create --help"
        )
    body = {"selector": selector, "max_in_flight": most, "max_in_flight_pct": share}
    answer = context.client.write("PUT", at("budgets", budget_id), body)
    context.done(answer, f"budget {budget_id}: at most {format_bound(body)} of hosts {selector}")


@budget.command("edit")
@click.argument("budget_id", shell_complete=BUDGETS)
@click.option("--hosts", "selector", help="The hosts that match this selector.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="How many at once.")
@click.option(
    "--max-percent",
    "share",
    type=click.IntRange(1, 100),
    metavar="N",
    help="What share of them at once.",
)
@with_context
def edit(
    context: CommandContext,
    budget_id: str,
    selector: str | None,
    most: int | None,
    share: int | None,
) -> None:
    """Change a budget. Settings that you do not name stay."""
    items = context.client.items(at("budgets"))
    found = next((item for item in items if item["budget_id"] == budget_id), None)
    if found is None:
        raise CommandExit(
            ExitCode.NOT_FOUND, f"there is no budget {budget_id!r}", "tidegate budget list"
        )
    given = {"selector": selector, "max_in_flight": most, "max_in_flight_pct": share}
    body = {name: found.get(name) if value is None else value for name, value in given.items()}
    answer = context.client.write("PUT", at("budgets", budget_id), body)
    context.done(
        answer, f"budget {budget_id}: at most {format_bound(body)} of hosts {body['selector']}"
    )


@budget.command("delete")
@click.argument("budget_id", shell_complete=BUDGETS)
@with_context
def remove(context: CommandContext, budget_id: str) -> None:
    """Remove a budget."""
    answer = context.client.write("DELETE", at("budgets", budget_id))
    document = answer.json() or {"removed": budget_id, "position": answer.position}
    context.done(document, f"budget {budget_id} is removed")


@budget.command("list")
@watch_option
@with_context
def list_all(context: CommandContext, watch: bool) -> None:
    """List all budgets, and how much of each is in use."""
    context.shown(
        lambda: list(context.client.items(at("budgets"))),
        COLUMNS,
        watch=watch,
        empty="no budget: as many hosts at once as the waves allow",
    )


@budget.command("show")
@click.argument("budget_id", shell_complete=BUDGETS)
@with_context
def show(context: CommandContext, budget_id: str) -> None:
    """Show one budget."""
    context.one_of(context.client.items(at("budgets")), "budget_id", budget_id, COLUMNS, "budget")
