"""What the verbs on revisions share: names, documents, how one is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.cli.context import CommandContext
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.output import (
    Cell,
    Column,
    Item,
    StateCell,
    column,
    dig,
    person_column,
    state_column,
    text,
    time_column,
    when,
)
from tidegate.cli.paths import at
from tidegate.cli.revisions.names import REPOSITORY_DEFAULT, full_name
from tidegate.cli.symbols import size

if TYPE_CHECKING:
    from tidegate.cli.client import ServerResponse


COLUMNS = (
    column("NAME", "metadata", "name"),
    state_column("LIFECYCLE", "spec", "lifecycle"),
    Column("REVISION", lambda item: number_of(item)),
    Column("FILES", lambda item: files_of(item)),
    person_column("BY", "status", "createdBy"),
    time_column("CREATED", "metadata", "creationTimestamp"),
    column("VERSION", "metadata", "resourceVersion"),
)


def number_of(item: Item) -> str:
    number = dig(item, "spec", "revision") or 0
    latest = " (latest)" if dig(item, "status", "latest") else ""
    return f"{number}{latest}" if number else "–"


def files_of(item: Item) -> str:
    content = dig(item, "status", "content") or {}
    shown = f"{content.get('file_count', 0)} ({size(content.get('total_bytes', 0))})"
    references = content.get("references", 0)
    return f"{shown}, {references} by reference" if references else shown


def release_of(item: Item) -> str:
    """How channels name a published revision."""
    number = dig(item, "spec", "revision")
    if not number:
        return "–"
    repository = str(dig(item, "spec", "repository"))
    path = str(dig(item, "spec", "packageName")).replace("/", ".")
    prefix = "" if repository == REPOSITORY_DEFAULT else f"{repository}."
    return f"{prefix}{path}.{number}"


def revision_fields(found: Any, names: Mapping[str, str | None]) -> list[tuple[str, Cell]]:
    """``names`` of users by id; one that it does not have is shown by the id."""
    spec, status = found["spec"], found["status"]

    def called(who: Any) -> Any:
        return names.get(who) or who

    upstream = status.get("upstream") or {}
    met = {item["type"]: item["status"] for item in status.get("conditions") or []}
    return [
        ("name", text(found["metadata"]["name"])),
        ("lifecycle", StateCell(spec["lifecycle"])),
        ("revision", number_of(found)),
        ("release", release_of(found)),
        ("digest", text(dig(status, "content", "digest"))),
        ("files", files_of(found)),
        ("made by", text([task.get("type") for task in spec["tasks"]])),
        ("descends from", text(upstream.get("name"))),
        (
            "created",
            _by(called(status.get("createdBy")), found["metadata"].get("creationTimestamp")),
        ),
        ("proposed", _by(called(status.get("proposedBy")), status.get("proposedAt"))),
        ("approved", text([called(who) for who in status.get("approvedBy") or ()])),
        ("published", _by(called(status.get("publishedBy")), status.get("publishedAt"))),
        ("self-approved", "yes" if status.get("selfApproved") else "–"),
        (
            "deletion proposed",
            _by(called(status.get("deletionProposedBy")), status.get("deletionProposedAt")),
        ),
        ("terminating", when(found["metadata"].get("deletionTimestamp"))),
        ("gates", text({gate: met.get(gate, "Unknown") for gate in spec["readinessGates"]})),
        ("labels", text(found["metadata"].get("labels"))),
        ("version", text(found["metadata"]["resourceVersion"])),
    ]


def _by(who: Any, at_time: Any) -> str:
    return "–" if not who else f"{text(who)} at {when(at_time)}"


def take_step(
    context: CommandContext, name: str, verb: str, body: dict[str, Any], version: int | None
) -> ServerResponse:
    """A step of a revision's lifecycle, on the version that was given or that stands."""
    path = at("revisions", full_name(name))
    etag = context.etag_of(path, version)
    return context.client.write("POST", f"{path}/{verb}", body, etag=etag)


def content_digest(found: Any) -> str:
    """Raises: Stop: the answer is no revision."""
    digest = dig(found, "status", "content", "digest")
    if not isinstance(digest, str):
        raise CommandExit(
            ExitCode.UNAVAILABLE, "the server's answer is no revision", "tidegate --version"
        )
    return digest
