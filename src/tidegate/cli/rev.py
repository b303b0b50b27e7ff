"""Package revisions: made and read; their files stand in ``files``, their review in ``review``."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import files, review
from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk, watched
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.files import Given, Programs, brought, referring
from tidegate.cli.output import column, dig, note, person, stated, timed
from tidegate.cli.paths import at
from tidegate.cli.revisions import (
    COLUMNS,
    PUBLISHED,
    REPOSITORY_DEFAULT,
    REVISIONS,
    full,
    parts_of,
    revision_fields,
)

STRATEGIES = ("three-way", "copy-merge", "force-delete-replace", "fast-forward")
LIFECYCLES = ("Draft", "Proposed", "Published", "DeletionProposed")
HISTORY = (
    column("POSITION", "position"),
    timed("TIME", "at"),
    column("WHAT", "action"),
    stated("LIFECYCLE", "lifecycle"),
    column("REVISION", "revision"),
    person("BY", "by"),
    column("WHY", "reason"),
)
REPOSITORIES = names("/v1/repositories", "name")


@click.group(cls=Noun)
def rev() -> None:
    """Package revisions. NAME is repository.package.workspace; web.v1 means default.web.v1."""


# ── made ──────────────────────────────────────────────────────────────────────────────────────────


@rev.command("init")
@click.argument("package")
@click.option("--workspace", required=True, help="What tells the drafts of a package apart: v1.")
@click.option(
    "--repo",
    "repository",
    default=REPOSITORY_DEFAULT,
    show_default=True,
    shell_complete=REPOSITORIES,
    help="Where it lives.",
)
@click.option("--from", "directory", type=click.Path(), help="Its first files.")
@referring
@click.option("--description", default="", help="What the package is.")
@click.option("--gate", "gates", multiple=True, help="A condition that it needs before review.")
@at_desk
def init(
    desk: Desk,
    package: str,
    workspace: str,
    repository: str,
    directory: str | None,
    given: Given,
    programs: Programs,
    description: str,
    gates: tuple[str, ...],
) -> None:
    """Draft the first revision of PACKAGE (such as web or networking/vpc)."""
    sent = None
    if directory is not None:
        from pathlib import Path

        from tidegate.cli.transfer import encoded

        sent = encoded(*brought(Path(directory), given, programs))
    elif given or programs:
        raise Stop(
            Exit.USAGE,
            "--reference and --executable go with --from: they join the files of a directory",
            "tidegate rev init --help",
        )
    task = {"type": "init", "description": description}
    drafted(desk, repository, package, workspace, task, files=sent, readinessGates=list(gates))


@rev.command("clone")
@click.argument("source", shell_complete=PUBLISHED)
@click.argument("package")
@click.option("--workspace", required=True, help="The draft's own name: v1.")
@click.option(
    "--repo", "repository", default=REPOSITORY_DEFAULT, show_default=True, help="Where it lives."
)
@at_desk
def clone(desk: Desk, source: str, package: str, workspace: str, repository: str) -> None:
    """Draft PACKAGE from SOURCE, a published revision of another package."""
    task = {"type": "clone", "upstream": full(source)}
    drafted(desk, repository, package, workspace, task)


@rev.command("copy")
@click.argument("source", shell_complete=PUBLISHED)
@click.option("--workspace", required=True, help="The draft's own name: v2.")
@at_desk
def copy(desk: Desk, source: str, workspace: str) -> None:
    """Draft the next revision of a package from SOURCE, a published one of it."""
    repository, package, _ = parts_of(source)
    task = {"type": "edit", "source": full(source)}
    drafted(desk, repository, package, workspace, task)


@rev.command("upgrade")
@click.argument("name", shell_complete=PUBLISHED)
@click.option("--workspace", required=True, help="The draft's own name: v3.")
@click.option("--to", "upstream", shell_complete=PUBLISHED, help="Else: the newest upstream.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="three-way",
    show_default=True,
    help="What happens to files that both sides changed.",
)
@at_desk
def upgrade(desk: Desk, name: str, workspace: str, upstream: str | None, strategy: str) -> None:
    """Draft a revision that brings NAME from its upstream to a newer one."""
    found = desk.get(at("revisions", full(name)))
    old = dig(found, "status", "upstream", "name")
    if old is None:
        raise Stop(Exit.REFUSED, f"{full(name)} descends from nothing", "tidegate rev clone --help")
    repository, package, _ = parts_of(name)
    task = {
        "type": "upgrade",
        "oldUpstream": old,
        "newUpstream": full(upstream) if upstream else _newest(desk, old),
        "localPackageRevision": full(name),
        "strategy": strategy,
    }
    drafted(desk, repository, package, workspace, task)


def _newest(desk: Desk, upstream: str) -> str:
    repository, package, _ = parts_of(upstream)
    found = desk.get(at("packages", repository, *package.split("/")))
    newest = str(dig(found, "latest", "name") or upstream)
    if newest == upstream:
        raise Stop(
            Exit.REFUSED,
            f"{upstream} is the newest revision of its package: nothing to upgrade to",
            f"tidegate rev get {upstream}",
        )
    return newest


def drafted(
    desk: Desk, repository: str, package: str, workspace: str, task: Any, **more: Any
) -> None:
    body = {
        "repository": repository,
        "packageName": package,
        "workspaceName": workspace,
        "tasks": [task],
        **{name: value for name, value in more.items() if value},
    }
    answer = desk.client.write("POST", at("revisions"), body)
    name = answer.json()["metadata"]["name"]
    following = f"propose {name}" if more.get("files") else f"push {name} DIRECTORY"
    desk.done(answer, f"{name} is drafted; next: tidegate rev {following}")


# ── read ──────────────────────────────────────────────────────────────────────────────────────────


@rev.command("get")
@click.argument("name", required=False, shell_complete=REVISIONS)
@click.option("--repo", "repository", shell_complete=REPOSITORIES, help="Only of this repository.")
@click.option("--package", help="Only of this package, with its repository: default/web.")
@click.option("--lifecycle", type=click.Choice(LIFECYCLES), help="Only those in this state.")
@click.option("--author", metavar="USER", help="Only those that this user drafted; me: yours.")
@click.option("--owner", metavar="KIND/ID", help="Only those that name this owner.")
@click.option("--as-of", metavar="POSITION|TIME", help="As it stood then.")
@watched
@at_desk
def get(
    desk: Desk,
    name: str | None,
    repository: str | None,
    package: str | None,
    lifecycle: str | None,
    author: str | None,
    owner: str | None,
    as_of: str | None,
    watch: bool,
) -> None:
    """One revision, or all of them."""
    if name is not None:
        path = at("revisions", full(name))
        desk.told(lambda: desk.get(path, as_of=as_of), revision_fields, watch=watch)
        return
    query = {
        "repository": repository,
        "package": package,
        "lifecycle": lifecycle,
        "author": author,
        "owner": owner,
    }
    desk.shown(
        lambda: list(desk.client.items(at("revisions"), query)),
        COLUMNS,
        watch=watch,
        empty="no revision; try: tidegate rev init web --workspace v1",
    )


for verb in files.VERBS:
    rev.add_command(verb)


@rev.command("history")
@click.argument("name", shell_complete=REVISIONS)
@at_desk
def history(desk: Desk, name: str) -> None:
    """Who did what to NAME, when and why; also after it is deleted."""
    desk.list(desk.client.items(at("revisions", full(name), "history")), HISTORY)


@rev.command("reap")
@click.argument("kind")
@click.argument("id")
@at_desk
def reap(desk: Desk, kind: str, id: str) -> None:
    """Delete what is still Draft or Proposed in the name of an owner (KIND and ID) that is gone.

    Published revisions stay. What may not go, or moved meanwhile, is kept and named.
    """
    answer = desk.client.write("POST", at("revision-reaps"), {"kind": kind, "id": id})
    found = answer.json()
    for name in found["kept"]:
        note(f"{name} is kept; see: tidegate rev get {name}")
    desk.done(answer, f"{len(found['deleted'])} revisions of {kind} {id} are deleted")


for verb in review.VERBS:
    rev.add_command(verb)
