"""Budgets: how many hosts may be disrupted at once, over all rollouts."""

from __future__ import annotations

import click

from tidegate.cli import completion, context as cli_context, exit_codes, output, paths

BUDGETS = completion.names("/v1/budgets", "budget_id")


def format_bound(item: output.Item) -> str:
    """Format a bound: a number, a share of the hosts, or the smaller of both."""
    number, share = item.get("max_in_flight"), item.get("max_in_flight_pct")
    bounds = [output.text(number)] if number is not None else []
    if share is not None:
        bounds.append(f"{share} %")
    return output.text(bounds)


COLUMNS = (
    output.column("BUDGET", "budget_id"),
    output.column("HOSTS", "selector"),
    output.Column("AT MOST", format_bound),
    output.column("TAKEN", "in_flight"),
)


@click.group(cls=cli_context.NounGroup)
def budget() -> None:
    """How many hosts may be disrupted at once."""


@budget.command("create")
@cli_context.dry_run_option
@click.argument("budget_id", metavar="BUDGET", shell_complete=BUDGETS)
@click.option("--hosts", "selector", required=True, help="The hosts that match this selector.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="How many at once.")
@click.option(
    "--max-percent",
    "share",
    type=click.IntRange(1, 100),
    metavar="N",
    help="What share of them at once. With both, the smaller one counts.",
)
@cli_context.with_context
def set_one(
    context: cli_context.CommandContext,
    budget_id: str,
    selector: str,
    most: int | None,
    share: int | None,
) -> None:
    """Limit how many of some hosts may be in flight at once."""
    if most is None and share is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "say --max, --max-percent or both",
            "tidegate budget create --help",
        )
    body = {"selector": selector, "max_in_flight": most, "max_in_flight_pct": share}
    answer = context.client.write("PUT", paths.at("budgets", budget_id), body)
    context.done(answer, f"budget {budget_id}: at most {format_bound(body)} of hosts {selector}")


@budget.command("edit")
@cli_context.dry_run_option
@click.argument("budget_id", metavar="BUDGET", shell_complete=BUDGETS)
@click.option("--hosts", "selector", help="The hosts that match this selector.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="How many at once.")
@click.option(
    "--max-percent",
    "share",
    type=click.IntRange(1, 100),
    metavar="N",
    help="What share of them at once.",
)
@cli_context.with_context
def edit(
    context: cli_context.CommandContext,
    budget_id: str,
    selector: str | None,
    most: int | None,
    share: int | None,
) -> None:
    """Change a budget. Settings that you do not name stay."""
    items = context.client.items(paths.at("budgets"))
    found = next((item for item in items if item["budget_id"] == budget_id), None)
    if found is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.NOT_FOUND,
            f"there is no budget {budget_id!r}",
            "tidegate budget list",
        )
    given = {"selector": selector, "max_in_flight": most, "max_in_flight_pct": share}
    body = {name: found.get(name) if value is None else value for name, value in given.items()}
    answer = context.client.write("PUT", paths.at("budgets", budget_id), body)
    context.done(
        answer, f"budget {budget_id}: at most {format_bound(body)} of hosts {body['selector']}"
    )


@budget.command("delete")
@cli_context.dry_run_option
@click.argument("budget_id", metavar="BUDGET", shell_complete=BUDGETS)
@cli_context.with_context
def remove(context: cli_context.CommandContext, budget_id: str) -> None:
    """Remove a budget."""
    answer = context.client.write("DELETE", paths.at("budgets", budget_id))
    document = answer.json() or {"removed": budget_id, "position": answer.position}
    context.done(document, f"budget {budget_id} is removed")


@budget.command("list")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, watch: bool) -> None:
    """List all budgets, and how much of each is in use."""
    context.print_items(
        lambda: list(context.client.items(paths.at("budgets"))),
        COLUMNS,
        watch=watch,
        empty="no budget: as many hosts at once as the waves allow",
    )


@budget.command("show")
@click.argument("budget_id", metavar="BUDGET", shell_complete=BUDGETS)
@cli_context.with_context
def show(context: cli_context.CommandContext, budget_id: str) -> None:
    """Show one budget."""
    context.one_of(
        context.client.items(paths.at("budgets")), "budget_id", budget_id, COLUMNS, "budget"
    )
