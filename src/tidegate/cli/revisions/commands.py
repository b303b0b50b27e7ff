"""Package revisions: create and read them; see ``files`` and ``review`` for the other verbs."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import completion, context as cli_context, exit_codes, output, paths, times
from tidegate.cli.revisions import documents, files as file_verbs, names as revision_names, review

STRATEGIES = ("three-way", "copy-merge", "force-delete-replace", "fast-forward")
LIFECYCLES = ("Draft", "Proposed", "Published", "DeletionProposed")
HISTORY = (
    output.column("POSITION", "position"),
    output.time_column("TIME", "at"),
    output.column("WHAT", "action"),
    output.state_column("LIFECYCLE", "lifecycle"),
    output.column("REVISION", "revision"),
    output.person_column("BY", "by", name="byName"),
    output.column("WHY", "reason"),
)
REPOSITORIES = completion.names("/v1/repositories", "name")


@click.group(cls=cli_context.NounGroup)
def rev() -> None:
    """Package revisions. NAME is repository.package.workspace; web.v1 means default.web.v1."""


# ── create ────────────────────────────────────────────────────────────────────────────────────────


@rev.command("create")
@click.argument("package")
@click.option(
    "--workspace", required=True, help="The name of the draft, unique in its package: v1."
)
@click.option(
    "--repo",
    "repository",
    default=revision_names.REPOSITORY_DEFAULT,
    show_default=True,
    shell_complete=REPOSITORIES,
    help="Where it lives.",
)
@click.option("--from", "directory", type=click.Path(), help="Its first files.")
@file_verbs.reference_options
@click.option("--description", default="", help="What the package is.")
@click.option("--gate", "gates", multiple=True, help="A condition that it needs before review.")
@file_verbs.quiet_option
@cli_context.with_context
def init(
    context: cli_context.CommandContext,
    package: str,
    workspace: str,
    repository: str,
    directory: str | None,
    given: file_verbs.Given,
    programs: file_verbs.Programs,
    description: str,
    gates: tuple[str, ...],
    quiet: bool,
) -> None:
    """Draft the first revision of PACKAGE (such as web or networking/vpc)."""
    sent = None
    if directory is not None:
        from pathlib import Path

        from tidegate.cli.revisions.transfer import send_files

        place = Path(directory)
        files, references = file_verbs.read_checkout(place, given, programs)
        sent = send_files(context, repository, place, files, references, quiet=quiet)
    elif given or programs:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "--reference and --executable go with --from: they join the files of a directory",
            "tidegate rev create --help",
        )
    task = {"type": "init", "description": description}
    create_draft(
        context, repository, package, workspace, task, files=sent, readinessGates=list(gates)
    )


@rev.command("clone")
@click.argument("source", shell_complete=revision_names.PUBLISHED)
@click.argument("package")
@click.option("--workspace", required=True, help="The draft's own name: v1.")
@click.option(
    "--repo",
    "repository",
    default=revision_names.REPOSITORY_DEFAULT,
    show_default=True,
    help="Where it lives.",
)
@cli_context.with_context
def clone(
    context: cli_context.CommandContext, source: str, package: str, workspace: str, repository: str
) -> None:
    """Draft PACKAGE from SOURCE, a published revision of another package."""
    task = {"type": "clone", "upstream": revision_names.full_name(source)}
    create_draft(context, repository, package, workspace, task)


@rev.command("copy")
@click.argument("source", shell_complete=revision_names.PUBLISHED)
@click.option("--workspace", required=True, help="The draft's own name: v2.")
@cli_context.with_context
def copy(context: cli_context.CommandContext, source: str, workspace: str) -> None:
    """Draft the next revision of a package from SOURCE, a published one of it."""
    repository, package, _ = revision_names.split_name(source)
    task = {"type": "edit", "source": revision_names.full_name(source)}
    create_draft(context, repository, package, workspace, task)


@rev.command("upgrade")
@click.argument("name", shell_complete=revision_names.PUBLISHED)
@click.option("--workspace", required=True, help="The draft's own name: v3.")
@click.option(
    "--to", "upstream", shell_complete=revision_names.PUBLISHED, help="Else: the newest upstream."
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="three-way",
    show_default=True,
    help="What happens to files that both sides changed.",
)
@cli_context.with_context
def upgrade(
    context: cli_context.CommandContext,
    name: str,
    workspace: str,
    upstream: str | None,
    strategy: str,
) -> None:
    """Draft a revision that brings NAME from its upstream to a newer one."""
    found = context.get(paths.at("revisions", revision_names.full_name(name)))
    old = output.dig(found, "status", "upstream", "name")
    if old is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.REFUSED,
            f"{revision_names.full_name(name)} descends from nothing",
            "tidegate rev clone --help",
        )
    repository, package, _ = revision_names.split_name(name)
    task = {
        "type": "upgrade",
        "oldUpstream": old,
        "newUpstream": revision_names.full_name(upstream) if upstream else _newest(context, old),
        "localPackageRevision": revision_names.full_name(name),
        "strategy": strategy,
    }
    create_draft(context, repository, package, workspace, task)


def _newest(context: cli_context.CommandContext, upstream: str) -> str:
    repository, package, _ = revision_names.split_name(upstream)
    found = context.get(paths.at("packages", repository, *package.split("/")))
    newest = str(output.dig(found, "latest", "name") or upstream)
    if newest == upstream:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.REFUSED,
            f"{upstream} is the newest revision of its package: nothing to upgrade to",
            f"tidegate rev show {upstream}",
        )
    return newest


def create_draft(
    context: cli_context.CommandContext,
    repository: str,
    package: str,
    workspace: str,
    task: Any,
    **more: Any,
) -> None:
    body = {
        "repository": repository,
        "packageName": package,
        "workspaceName": workspace,
        "tasks": [task],
        **{name: value for name, value in more.items() if value},
    }
    answer = context.client.write("POST", paths.at("revisions"), body)
    name = answer.json()["metadata"]["name"]
    following = f"propose {name}" if more.get("files") else f"push {name} DIRECTORY"
    context.done(answer, f"{name} is drafted; next: tidegate rev {following}")


# ── read ──────────────────────────────────────────────────────────────────────────────────────────


@rev.command("list")
@click.option("--repo", "repository", shell_complete=REPOSITORIES, help="Only of this repository.")
@click.option(
    "--package", help="Only of this package: web. With its repository: apps/web, default/net/vpc."
)
@click.option(
    "--lifecycle", type=cli_context.WordChoice(LIFECYCLES), help="Only those in this state."
)
@click.option("--author", metavar="USER", help="Only those that this user drafted; me: yours.")
@click.option("--owner", metavar="KIND/ID", help="Only those that name this owner.")
@cli_context.watch_option
@cli_context.with_context
def list_all(
    context: cli_context.CommandContext,
    repository: str | None,
    package: str | None,
    lifecycle: str | None,
    author: str | None,
    owner: str | None,
    watch: bool,
) -> None:
    """List revisions."""
    query = {
        "repository": repository,
        "package": package
        if package is None or "/" in package
        else f"{revision_names.REPOSITORY_DEFAULT}/{package}",
        "lifecycle": lifecycle,
        "author": author,
        "owner": owner,
    }
    context.print_items(
        lambda: list(context.client.items(paths.at("revisions"), query)),
        documents.COLUMNS,
        watch=watch,
        empty="no revision; try: tidegate rev create web --workspace v1",
    )


@rev.command("show")
@click.argument("name", shell_complete=revision_names.REVISIONS)
@click.option("--as-of", metavar="POSITION|TIME", help="As it was then: a log position or a time.")
@cli_context.watch_option
@cli_context.with_context
def show(context: cli_context.CommandContext, name: str, as_of: str | None, watch: bool) -> None:
    """Show the revision NAME."""
    path = paths.at("revisions", revision_names.full_name(name))

    def fields(found: Any) -> list[tuple[str, output.Cell]]:
        try:
            people = context.get(f"{path}/people")["items"]
        except exit_codes.CommandExit:  # it was just deleted; a card with ids is better than none
            people = []
        return documents.revision_fields(found, {item["user_id"]: item["name"] for item in people})

    context.print_object(
        lambda: context.get(path, as_of=times.api_as_of(as_of)), fields, watch=watch
    )


for verb in file_verbs.VERBS:
    rev.add_command(verb)


@rev.command("history")
@click.argument("name", shell_complete=revision_names.REVISIONS)
@cli_context.with_context
def history(context: cli_context.CommandContext, name: str) -> None:
    """Show who did what to NAME, when and why, even after it was deleted."""
    context.list(
        context.client.items(paths.at("revisions", revision_names.full_name(name), "history")),
        HISTORY,
    )


@rev.command("reap")
@click.argument("kind")
@click.argument("id")
@cli_context.with_context
def reap(context: cli_context.CommandContext, kind: str, id: str) -> None:
    """Delete the drafts and proposals of an owner (KIND and ID) that no longer exists.

    Published revisions stay. Revisions that cannot be deleted or have changed are kept and listed.
    """
    answer = context.client.write("POST", paths.at("revision-reaps"), {"kind": kind, "id": id})
    found = answer.json()
    for name in found["kept"]:
        output.note(f"{name} is kept; see: tidegate rev show {name}")
    context.done(answer, f"{len(found['deleted'])} revisions of {kind} {id} are deleted")


for verb in review.VERBS:
    rev.add_command(verb)
