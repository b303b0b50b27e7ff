"""Revisions with the command line: drafted, pushed, reviewed, published, upgraded, deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.conftest import Seat
from tests.cli.revision_files import files
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Role

DECISIONS_MAX = 100


def published(author: Shell, approver: Shell, package: str, place: str) -> str:
    """Publish the first revision of a package; return its name."""
    name = f"default.{package}.v1"
    assert author.run("rev", "create", package, "--workspace", "v1", "--from", place).code == 0
    assert author.run("rev", "propose", name).code == 0
    assert approver.run("rev", "approve", name).code == 0
    return name


def test_explains_the_next_step_and_the_names_of_revisions(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    place = files(tmp_path / "next", app_conf="port = 80\n")

    empty = author.run("rev", "create", "next", "--workspace", "v1")
    full = author.run("rev", "create", "next", "--workspace", "v2", "--from", place)
    pushed = author.run("rev", "push", "next.v1", place)
    nameless = author.run("rev", "show", "next")

    assert empty.out.endswith("next: tidegate rev push default.next.v1 DIRECTORY\n")
    assert full.out.endswith("next: tidegate rev propose default.next.v2\n")
    assert "has 1 file; next" in pushed.out
    assert nameless.code == 2
    assert "repository.package.workspace" in nameless.err
    assert "found 'next'" in nameless.err


def test_takes_a_draft_to_its_release(seat: Seat, tmp_path: Path) -> None:
    author, approver = seat(Role.AUTHOR), seat(Role.APPROVER)
    place = files(tmp_path / "web", app_conf="port = 80\n", static__index_html="<h1>hi</h1>\n")

    drafted = author.run("rev", "create", "web", "--workspace", "v1")
    pushed = author.run("rev", "push", "web.v1", place)
    proposed = author.run("rev", "propose", "web.v1", "--reason", "first")
    own = author.run("rev", "approve", "web.v1")
    difference = approver.run("rev", "diff", "web.v1")
    approved = approver.run("rev", "approve", "web.v1")
    late = author.run("rev", "push", "web.v1", place)
    shown = author.run("rev", "show", "web.v1")
    history = author.run("rev", "history", "web.v1", "-o", "jsonl").lines()

    assert "default.web.v1 is drafted" in drafted.out
    assert "has 2 files" in pushed.out
    assert proposed.code == 0
    assert own.code == 5
    assert "+port = 80" in difference.out
    assert "is published as web.1" in approved.out
    assert (late.code, "try: tidegate rev copy web.v1" in late.err) == (1, True)
    assert "● Published" in shown.out
    assert [step["action"] for step in history][-2:] == ["Approve", "Publish"]


def test_pulls_pushed_files_and_refuses_to_lose_changes(seat: Seat, tmp_path: Path) -> None:
    ann, bob = seat(Role.AUTHOR), seat(Role.AUTHOR)
    place = files(tmp_path / "first", a_txt="one\n")
    ann.run("rev", "create", "pulled", "--workspace", "v1", "--from", place)
    hers, his = tmp_path / "hers", tmp_path / "his"

    assert ann.run("rev", "pull", "pulled.v1", str(hers)).code == 0
    assert bob.run("rev", "pull", "pulled.v1", str(his)).code == 0
    (hers / "a.txt").write_text("two\n")
    (hers / "b.bin").write_bytes(bytes(range(256)))
    clobbering = ann.run("rev", "pull", "pulled.v1", str(hers))
    pushed = ann.run("rev", "push", "pulled.v1", str(hers))
    again = ann.run("rev", "push", "pulled.v1", str(hers))
    (his / "a.txt").write_text("three\n")
    late = bob.run("rev", "push", "pulled.v1", str(his))
    discarded = bob.run("rev", "pull", "pulled.v1", str(his), "--discard")

    assert (clobbering.code, "not pushed" in clobbering.err) == (3, True)
    assert pushed.code == again.code == 0
    assert (late.code, "another person pushed" in late.err) == (3, True)
    assert discarded.code == 0
    assert (his / "a.txt").read_text() == "two\n"
    assert (his / "b.bin").read_bytes() == bytes(range(256))
    assert json.loads((his / ".tidegate.json").read_text())["name"] == "default.pulled.v1"


def test_pulls_into_no_foreign_directory(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    place = files(tmp_path / "own", a_txt="mine\n")
    author.run("rev", "create", "other", "--workspace", "v1")

    refused = author.run("rev", "pull", "other.v1", place)

    assert (refused.code, "holds files of its own" in refused.err) == (3, True)
    assert (tmp_path / "own" / "a.txt").read_text() == "mine\n"


def test_sends_the_version_that_it_acts_on(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    draft = author.run("rev", "create", "versions", "--workspace", "v1", "-o", "json").json()
    version = draft["metadata"]["resourceVersion"]

    done = author.run("rev", "propose", "versions.v1", "--version", version)
    stale = author.run("rev", "withdraw", "versions.v1", "--version", version)

    assert done.code == 0
    assert stale.code == 3
    assert "try: tidegate rev show versions.v1" in stale.err


def test_rejects_and_withdraws_proposals(seat: Seat) -> None:
    author, approver = seat(Role.AUTHOR), seat(Role.APPROVER)
    author.run("rev", "create", "sent-back", "--workspace", "v1")

    author.run("rev", "propose", "sent-back.v1")
    silent = approver.run("rev", "reject", "sent-back.v1")
    rejected = approver.run("rev", "reject", "sent-back.v1", "--reason", "no tests")
    author.run("rev", "propose", "sent-back.v1")
    withdrawn = author.run("rev", "withdraw", "sent-back.v1")
    deleted = author.run("rev", "delete", "sent-back.v1")
    gone = author.run("rev", "show", "sent-back.v1")
    history = author.run("rev", "history", "sent-back.v1")

    assert (silent.code, "--reason" in silent.err) == (2, True)
    assert rejected.code == withdrawn.code == deleted.code == 0
    assert (gone.code, "try: tidegate rev list" in gone.err) == (4, True)
    assert "no tests" in history.out


def test_waits_for_another_person_to_decide(seat: Seat) -> None:
    author, approver = seat(Role.AUTHOR), seat(Role.APPROVER)
    for package in ("waits-a", "waits-b"):
        author.run("rev", "create", package, "--workspace", "v1")

    def once_proposed(*words: str) -> None:
        for _ in range(DECISIONS_MAX):
            if approver.run("rev", *words).code == 0:
                return

    with ThreadPoolExecutor(1) as thread:
        thread.submit(once_proposed, "approve", "waits-a.v1")
        published = author.run("rev", "propose", "waits-a.v1", "--wait", "--timeout", "80")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(once_proposed, "reject", "waits-b.v1", "--reason", "not now")
        rejected = author.run("rev", "propose", "waits-b.v1", "--wait", "--timeout", "80")

    assert (published.code, "● Published" in published.out) == (0, True), published
    assert (rejected.code, "try: tidegate rev history" in rejected.err) == (1, True), rejected


def test_copies_clones_and_upgrades(seat: Seat, tmp_path: Path) -> None:
    author, approver = seat(Role.AUTHOR), seat(Role.APPROVER)
    place = files(tmp_path / "base", a_txt="1\n", b_txt="1\n")
    published(author, approver, "base", place)
    cloned = author.run("rev", "clone", "base.v1", "leaf", "--workspace", "v1")
    author.run("rev", "propose", "leaf.v1")
    approver.run("rev", "approve", "leaf.v1")

    early = author.run("rev", "upgrade", "leaf.v1", "--workspace", "v2")
    copied = author.run("rev", "copy", "base.v1", "--workspace", "v2")
    author.run("rev", "push", "base.v2", files(tmp_path / "next", a_txt="2\n", b_txt="1\n"))
    author.run("rev", "propose", "base.v2")
    approver.run("rev", "approve", "base.v2")
    upgraded = author.run("rev", "upgrade", "leaf.v1", "--workspace", "v2", "-o", "json").json()
    difference = author.run("rev", "diff", "leaf.v2", "leaf.v1")
    rootless = author.run("rev", "upgrade", "base.v2", "--workspace", "v3")

    assert cloned.code == copied.code == 0
    assert (early.code, "nothing to upgrade to" in early.err) == (1, True)
    assert upgraded["status"]["upstream"]["name"] == "default.base.v2"
    assert "+2" in difference.out
    assert (rootless.code, "descends from nothing" in rootless.err) == (1, True)


def test_deletes_a_published_revision_only_after_a_proposal(seat: Seat, tmp_path: Path) -> None:
    author, approver = seat(Role.AUTHOR), seat(Role.APPROVER)
    name = published(author, approver, "doomed", files(tmp_path / "doomed", a_txt="x\n"))

    direct = author.run("rev", "delete", name)
    author.run("rev", "propose-delete", name, "--reason", "unused")
    kept = approver.run("rev", "reject-delete", name, "--reason", "in use")
    author.run("rev", "propose-delete", name)
    alone = author.run("rev", "delete", name)
    deleted = approver.run("rev", "delete", name, "-o", "json").json()

    assert (direct.code, f"try: tidegate rev propose-delete {name}" in direct.err) == (5, True)
    assert kept.code == 0
    assert (alone.code, "needs the role approver on repository:default" in alone.err) == (
        5,
        True,
    ), alone
    assert deleted["deleted"] == name


def test_lists_by_repository_package_and_lifecycle(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    author.run("rev", "create", "listed/one", "--workspace", "v1")
    author.run("rev", "create", "listed/two", "--workspace", "v1")
    author.run("rev", "propose", "default.listed.two.v1")

    proposed = author.run("rev", "list", "--lifecycle", "Proposed", "-o", "jsonl").lines()
    one = author.run("rev", "list", "--package", "default/listed/one", "-o", "json").json()
    none = author.run("rev", "list", "--package", "nothing")

    assert "default.listed.two.v1" in {item["metadata"]["name"] for item in proposed}
    assert [item["metadata"]["name"] for item in one] == ["default.listed.one.v1"]
    assert (none.code, "there is no package default/nothing [" in none.err) == (4, True)


def test_shows_a_revision_as_it_was(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    draft = author.run("rev", "create", "past", "--workspace", "v1", "-o", "json").json()
    author.run("rev", "propose", "past.v1")

    then = draft["metadata"]["resourceVersion"]
    before = author.run("rev", "show", "past.v1", "--as-of", then, "-o", "json").json()

    assert before["spec"]["lifecycle"] == "Draft"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda place: (place / "link").symlink_to("/etc"), "it is absolute"),
        (lambda place: place.rmdir(), "no directory"),
    ],
)
def test_pushes_nothing_but_plain_files(
    seat: Seat, tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    place = tmp_path / "odd"
    place.mkdir()
    make(place)

    refused = seat(Role.AUTHOR).run("rev", "push", "odd.v1", str(place))

    assert (refused.code, why in refused.err, "try: " in refused.err) == (2, True, True)


def test_lists_own_drafts_and_reaps_those_of_an_owner(seat: Seat) -> None:
    ann, bob, admin = seat(Role.AUTHOR), seat(Role.AUTHOR), seat(Role.SECURITY_ADMIN)
    ann.run("rev", "create", "hers", "--workspace", "v1")
    bob.run("rev", "create", "his", "--workspace", "v1")

    hers = ann.run("rev", "list", "--author", "me", "-o", "jsonl").lines()
    who = ann.run("whoami", "-o", "json").json()["user_id"]
    seen = bob.run("rev", "list", "--author", who, "-o", "jsonl").lines()
    none = admin.run("rev", "reap", "variant", "edge")
    refused = ann.run("rev", "reap", "variant", "edge")

    assert [item["metadata"]["name"] for item in hers] == ["default.hers.v1"]
    assert seen == hers
    assert (none.code, "0 revisions of variant edge are deleted" in none.out) == (0, True)
    assert refused.code == 5
