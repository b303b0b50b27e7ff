"""Repositories: where packages live, and how many must approve."""

from __future__ import annotations

import click

from tidegate.cli import completion, context as cli_context, output, paths

COLUMNS = (
    output.column("NAME", "name"),
    output.column("APPROVALS", "quorum"),
    output.column("DEPLOYMENT", "deployment"),
    output.column("PROTECTS PROPOSALS", "protect_proposed"),
    output.column("VERSION", "version"),
)


@click.group(cls=cli_context.NounGroup)
def repo() -> None:
    """Repositories: where packages live, and how many must approve."""


@repo.command("create")
@click.argument("name")
@click.option(
    "--approvals",
    type=click.IntRange(0),
    metavar="N",
    default=1,
    show_default=True,
    help="How many approvals publish a revision; 0: one person works here alone.",
)
@click.option(
    "--deployment", is_flag=True, help="Hosts are deployed from it: a deletion needs two people."
)
@click.option("--protect-proposed", is_flag=True, default=None, help="Proposals are not deleted.")
@cli_context.with_context
def create(
    context: cli_context.CommandContext,
    name: str,
    approvals: int,
    deployment: bool,
    protect_proposed: bool | None,
) -> None:
    """Create the repository NAME."""
    body = {
        "name": name,
        "quorum": approvals,
        "deployment": deployment,
        "protect_proposed": protect_proposed,
    }
    answer = context.client.write("POST", paths.at("repositories"), body)
    needs = output.counted(approvals, "approval")
    context.done(answer, f"repository {name} exists; a revision needs {needs}")


@repo.command("edit")
@cli_context.dry_run_option
@click.argument("name", shell_complete=completion.names("/v1/repositories", "name"))
@click.option(
    "--approvals", type=click.IntRange(0), metavar="N", help="How many approvals publish."
)
@click.option(
    "--deployment/--no-deployment", default=None, help="Whether hosts are deployed from it."
)
@click.option(
    "--protect-proposed/--no-protect-proposed",
    default=None,
    help="Whether a proposal must be withdrawn or rejected before it is deleted.",
)
@cli_context.version_option
@cli_context.with_context
def edit(
    context: cli_context.CommandContext,
    name: str,
    approvals: int | None,
    deployment: bool | None,
    protect_proposed: bool | None,
    version: int | None,
) -> None:
    """Change how revisions of NAME are approved. Settings that you do not name stay."""
    path = paths.at("repositories", name)
    body = {"quorum": approvals, "deployment": deployment, "protect_proposed": protect_proposed}
    etag = context.etag_of(path, version)
    answer = context.client.write("PATCH", path, body, etag=etag)
    context.done(answer, f"repository {name} is changed")


@repo.command("delete")
@cli_context.dry_run_option
@click.argument("name", shell_complete=completion.names("/v1/repositories", "name"))
@cli_context.reason(required=True)
@cli_context.with_context
def delete(context: cli_context.CommandContext, name: str, reason: str) -> None:
    """Delete the repository NAME if it has no packages. Its history stays."""
    answer = context.client.write(
        "POST", paths.at("repositories", name, "delete"), {"reason": reason}
    )
    context.done(answer, f"repository {name} is deleted")


@repo.command("list")
@cli_context.with_context
def list_all(context: cli_context.CommandContext) -> None:
    """List the repositories that you may read."""
    items = context.client.items(paths.at("repositories"))
    context.list(items, COLUMNS, empty="no repository yet; try: tidegate repo create default")


@repo.command("show")
@click.argument("name", shell_complete=completion.names("/v1/repositories", "name"))
@cli_context.with_context
def show(context: cli_context.CommandContext, name: str) -> None:
    """Show the repository NAME."""
    found = context.get(paths.at("repositories", name))
    context.card(found, [(column.title.lower(), column.cell(found)) for column in COLUMNS])
