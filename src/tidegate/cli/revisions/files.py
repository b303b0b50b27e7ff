"""The files of revisions: list, pull, push and compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidegate.cli import context as cli_context, exit_codes, output, paths, symbols
from tidegate.cli.revisions import documents, names

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.cli.revisions.checkout import CheckoutMark, Files, Reference

F = TypeVar("F", bound=Callable[..., Any])
Given = tuple[tuple[str, str, str, int], ...]  # --reference
Programs = tuple[str, ...]  # --executable
FILES = (
    output.column("PATH", "path"),
    output.Column("MODE", lambda item: _mode_of(item)),
    output.Column("SIZE", lambda item: symbols.size(item["bytes"])),
    output.column("SHA256", "sha256"),
    output.column("REFERENCE", "uri"),
    output.column("LINK TO", "link"),
)
SIDES = (("-", "red", "before"), ("+", "green", "after"))


def reference_options(verb: F) -> F:
    """``--reference``: a file that is stored elsewhere; ``--executable``: it is a program."""
    verb = click.option(
        "--executable",
        "programs",
        multiple=True,
        metavar="PATH",
        help="The reference PATH is a program that hosts may run; repeatable.",
    )(verb)
    return click.option(
        "--reference",
        "given",
        type=(str, str, str, click.IntRange(min=0)),
        multiple=True,
        metavar="PATH URI SHA256 BYTES",
        help="A file that hosts fetch from URI (https, http, file) and verify; repeatable.",
    )(verb)


def quiet_option(verb: F) -> F:
    """``--quiet``: no progress bar."""
    return click.option("--quiet", is_flag=True, help="Show no progress bar.")(verb)


def read_checkout(
    place: Path, given: Given, programs: Programs
) -> tuple[Files, tuple[Reference, ...]]:
    """Read the files of a directory, and its references and those of the flags.

    Raises:
        CommandExit.
    """
    from dataclasses import replace

    from tidegate.cli.revisions import checkout

    files = checkout.read(place)
    references = {item.path: item for item in checkout.read_references(place)}
    references |= {item[0]: checkout.Reference(*item) for item in given}
    for path in programs:
        if path not in references:
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.USAGE,
                f"--executable names {path}, which is no reference; a file is executable by its"
                " own mode",
                f"chmod +x {place / path}",
            )
        references[path] = replace(references[path], executable=True)
    twice = sorted(files.keys() & references.keys())
    if twice:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            f"{twice[0]} is a file in {place} and a reference; it is one of the two",
            f"rm {place / twice[0]}",
        )
    return files, tuple(references.values())


@click.command("pull", cls=cli_context.VerbCommand)
@click.argument("name", shell_complete=names.REVISIONS)
@click.argument("directory", type=click.Path(), required=False)
@click.option("--discard", is_flag=True, help="Overwrite changes that were not pushed.")
@quiet_option
@cli_context.with_context
def pull(
    context: cli_context.CommandContext,
    name: str,
    directory: str | None,
    discard: bool,
    quiet: bool,
) -> None:
    """Write the files of NAME into DIRECTORY (default: its name) and verify their digest.

    References are not fetched. They are listed in .tidegate-references.json, which a push sends.
    """
    from pathlib import Path

    from tidegate.cli.revisions import checkout
    from tidegate.cli.revisions.transfer import transfer_bar, unpack_archive

    name = names.full_name(name)
    place = Path(directory or name)
    checkout.check_free(place, name, discard=discard)
    found = context.get(paths.at("revisions", name))
    count, total = (
        int(output.dig(found, "status", "content", member) or 0)
        for member in ("file_count", "total_bytes")
    )
    references: tuple[Reference, ...] = ()
    if output.dig(found, "status", "content", "references"):
        listed = context.get(paths.at("revisions", name, "resources"))["files"]
        references = tuple(checkout.reference_from_json(item) for item in listed if item.get("uri"))
    archive = context.client.download(paths.at("revisions", name, "archive"))
    try:
        with (
            checkout.staging(place) as stage,
            transfer_bar(context, "pulling", archive.size, quiet=quiet) as archive.progress,
        ):
            files = unpack_archive(archive, stage, count, total)
            checkout.write(place, stage, files, _mark(name, found), references)
    finally:
        archive.close()
    written = symbols.size(sum(file.bytes for file in files.values()))
    more = f", {len(references)} are references" if references else ""
    context.done(
        found, f"{place} has {output.counted(len(files), 'file')} ({written}) of {name}{more}"
    )


def _mark(name: str, found: Any) -> CheckoutMark:
    from tidegate.cli.revisions.checkout import CheckoutMark

    manifest = str(output.dig(found, "status", "content", "manifest") or "")
    version = int(found["metadata"]["resourceVersion"])
    return CheckoutMark(name, version, documents.content_digest(found), manifest)


@click.command("push", cls=cli_context.VerbCommand)
@click.argument("name", shell_complete=names.REVISIONS)
@click.argument("directory", type=click.Path())
@reference_options
@cli_context.version_option
@quiet_option
@cli_context.with_context
def push(
    context: cli_context.CommandContext,
    name: str,
    directory: str,
    given: Given,
    programs: Programs,
    version: int | None,
    quiet: bool,
) -> None:
    """Replace all files of the draft NAME by those of DIRECTORY, with their executable bits.

    If DIRECTORY was pulled, the push is refused if another person pushed in between. Name files
    that are stored elsewhere with --reference, or in DIRECTORY/.tidegate-references.json.
    """
    from pathlib import Path

    from tidegate.cli.revisions import checkout
    from tidegate.cli.revisions.transfer import send_files

    name = names.full_name(name)
    place = Path(directory)
    files, references = read_checkout(place, given, programs)
    path = paths.at("revisions", name)
    etag = f'"{version}"' if version is not None else _demand_unchanged(context, name, place)
    repository, _, _ = names.split_name(name)
    sent = send_files(context, repository, place, files, references, quiet=quiet)
    answer = context.client.write("PUT", f"{path}/resources", {"files": sent}, etag=etag)
    found = answer.json()
    if checkout.read_mark(place) is not None:
        checkout.write_references(place, references)
        checkout.mark(place, _mark(name, found))
    count = output.dig(found, "status", "content", "file_count")
    more = f", {len(references)} by reference" if references else ""
    context.done(
        found,
        f"{name} has {output.counted(count, 'file')}{more}; next: tidegate rev propose {name}",
    )


def _demand_unchanged(context: cli_context.CommandContext, name: str, place: Path) -> str | None:
    """The current version, if its content is the one that was pulled here. Raises: CommandExit."""
    from tidegate.cli.revisions.checkout import read_mark

    answer = context.client.get(paths.at("revisions", name))
    mark = read_mark(place)
    if mark is None or mark.name != name:
        return answer.etag
    current = _mark(name, answer.json())
    if mark.manifest != current.manifest:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.CONFLICT,
            f"another person pushed to {name} since it was pulled into {place}",
            f"tidegate rev pull {name} ANOTHER-DIRECTORY",
            f"tidegate rev history {name}",
        )
    return answer.etag


@click.command("files", cls=cli_context.VerbCommand)
@click.argument("name", shell_complete=names.REVISIONS)
@cli_context.with_context
def files(context: cli_context.CommandContext, name: str) -> None:
    """List the files of NAME: paths, modes, sizes, hashes, and the addresses of references."""
    found = context.get(paths.at("revisions", names.full_name(name), "resources"))
    context.list(found["files"], FILES)


@click.command("diff", cls=cli_context.VerbCommand)
@click.argument("name", shell_complete=names.REVISIONS)
@click.argument("against", required=False, shell_complete=names.REVISIONS)
@cli_context.with_context
def diff(context: cli_context.CommandContext, name: str, against: str | None) -> None:
    """Show how NAME differs from AGAINST, by default the latest published revision."""
    other = names.full_name(against) if against else None
    found = context.get(paths.at("revisions", names.full_name(name), "diff"), against=other)
    if not context.is_for_people:
        context.card(found, [])
        return
    if not found["changes"]:
        output.note(f"no difference to {output.text(found['old'])}")
    for change in found["changes"]:
        for line in _patch_lines(change):
            output.say(line)


def _patch_lines(change: Any) -> list[str]:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    if change["patch"] is None:
        before, after = (output.dig(change, side, "bytes") for side in ("before", "after"))
        sizes = " → ".join(symbols.size(count) for count in (before, after) if count is not None)
        summary = f"{change['what']}: {output.text(change['path'])} ({sizes})"
        if change.get("too_different"):
            summary += ", too different to show line by line"
        return [summary, *_mode_lines(change), *_side_lines(change)]
    from tidegate.cli.symbols import clean

    return _mode_lines(change) + [
        output.coloured(clean(line.replace("\t", "    ")), colours.get(line[:1], "default"))
        for line in change["patch"].splitlines()
    ]


def _mode_lines(change: Any) -> list[str]:
    """The line about a change of the executable bit."""
    before, after = (output.dig(change, side, "executable") is True for side in ("before", "after"))
    if change["after"] is None or before is after:
        return []
    return [f"{output.text(change['path'])} is {'now' if after else 'no longer'} executable"]


def _side_lines(change: Any) -> list[str]:
    """The addresses or targets of both sides, if one of them is a reference or a link."""
    sides = [(sign, colour, change[side]) for sign, colour, side in SIDES if change[side]]
    if not any(file.get("uri") or file.get("link") for _, _, file in sides):
        return []
    return [
        output.coloured(f"{sign}{_place_of(file)} sha256:{output.text(file['sha256'])}", colour)
        for sign, colour, file in sides
    ]


def _mode_of(file: Any) -> str:
    if file.get("link"):
        return "link"
    return "0755" if file.get("executable") else "0644"


def _place_of(file: Any) -> str:
    if file.get("link"):
        return f"link to {output.text(file['link'])}"
    return f"by reference {output.text(file['uri'])}" if file.get("uri") else "kept here"


VERBS = (pull, push, files, diff)
