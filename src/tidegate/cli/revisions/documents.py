"""The card of a revision, and what several verbs on revisions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.cli import exit_codes, output, paths, symbols
from tidegate.cli.context import CommandContext
from tidegate.cli.revisions.names import REPOSITORY_DEFAULT, full_name

if TYPE_CHECKING:
    from tidegate.cli.client import ServerResponse


COLUMNS = (
    output.column("NAME", "metadata", "name"),
    output.state_column("LIFECYCLE", "spec", "lifecycle"),
    output.Column("REVISION", lambda item: number_of(item)),
    output.Column("FILES", lambda item: files_of(item)),
    output.Column(
        "BY",
        lambda item: output.text(
            output.dig(item, "status", "createdByName") or output.dig(item, "status", "createdBy")
        ),
        is_person=True,
    ),
    output.time_column("CREATED", "metadata", "creationTimestamp"),
    output.column("VERSION", "metadata", "resourceVersion"),
)


def number_of(item: output.Item) -> str:
    number = output.dig(item, "spec", "revision") or 0
    latest = " (latest)" if output.dig(item, "status", "latest") else ""
    return f"{number}{latest}" if number else "–"


def files_of(item: output.Item) -> str:
    content = output.dig(item, "status", "content") or {}
    shown = f"{content.get('file_count', 0)} ({symbols.size(content.get('total_bytes', 0))})"
    references = content.get("references", 0)
    return f"{shown}, {references} by reference" if references else shown


def release_of(item: output.Item) -> str:
    """The release name of a published revision, as channels use it."""
    number = output.dig(item, "spec", "revision")
    if not number:
        return "–"
    repository = str(output.dig(item, "spec", "repository"))
    path = str(output.dig(item, "spec", "packageName")).replace("/", ".")
    prefix = "" if repository == REPOSITORY_DEFAULT else f"{repository}."
    return f"{prefix}{path}.{number}"


def revision_fields(found: Any, names: Mapping[str, str | None]) -> list[tuple[str, output.Cell]]:
    """The fields of a card. ``names``: users by id; a user without a name is shown by the id."""
    spec, status = found["spec"], found["status"]

    def called(who: Any) -> Any:
        return names.get(who) or who

    upstream = status.get("upstream") or {}
    met = {item["type"]: item["status"] for item in status.get("conditions") or []}
    return [
        ("name", output.text(found["metadata"]["name"])),
        ("lifecycle", output.StateCell(spec["lifecycle"])),
        ("revision", number_of(found)),
        ("release", release_of(found)),
        ("digest", output.text(output.dig(status, "content", "digest"))),
        ("files", files_of(found)),
        ("made by", output.text([task.get("type") for task in spec["tasks"]])),
        ("descends from", output.text(upstream.get("name"))),
        (
            "created",
            _by(called(status.get("createdBy")), found["metadata"].get("creationTimestamp")),
        ),
        ("proposed", _by(called(status.get("proposedBy")), status.get("proposedAt"))),
        ("approved", output.text([called(who) for who in status.get("approvedBy") or ()])),
        ("published", _by(called(status.get("publishedBy")), status.get("publishedAt"))),
        ("self-approved", "yes" if status.get("selfApproved") else "–"),
        (
            "deletion proposed",
            _by(called(status.get("deletionProposedBy")), status.get("deletionProposedAt")),
        ),
        ("terminating", output.when(found["metadata"].get("deletionTimestamp"))),
        ("gates", output.text({gate: met.get(gate, "Unknown") for gate in spec["readinessGates"]})),
        ("labels", output.text(found["metadata"].get("labels"))),
        ("version", output.text(found["metadata"]["resourceVersion"])),
    ]


def _by(who: Any, at_time: Any) -> str:
    return "–" if not who else f"{output.text(who)} at {output.when(at_time)}"


def take_step(
    context: CommandContext, name: str, verb: str, body: dict[str, Any], version: int | None
) -> ServerResponse:
    """Take a step of the lifecycle, at the given version or else the current one."""
    path = paths.at("revisions", full_name(name))
    etag = context.etag_of(path, version)
    return context.client.write("POST", f"{path}/{verb}", body, etag=etag)


def content_digest(found: Any) -> str:
    """Raises: CommandExit: the document is not a revision."""
    digest = output.dig(found, "status", "content", "digest")
    if not isinstance(digest, str):
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            "the server's answer is no revision",
            "tidegate --version",
        )
    return digest
