"""Users in tables: shown by name to those who may see names, and by id to all others."""

from __future__ import annotations

import json
from pathlib import Path

from tests.api.serving import Served
from tests.cli.conftest import Seat
from tests.cli.shell import Shell
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.roles import Grant, Role

AUTHOR = "user_people0001"


def author(shared: Served, home: Path) -> Shell:
    """A user with a name, who drafted a revision."""
    accounts = shared.installation.accounts
    called = PersonNames("grace", "Grace Hopper\x1b[31m")
    grants = (Grant(Role.AUTHOR),)
    if accounts.called(AUTHOR) is None:
        password = "a long enough passphrase"
        shared.add_person(AUTHOR, called, password, *grants)
    return Shell(home, shared.url, shared.token(AUTHOR))


def test_shows_names_to_every_reader_and_ids_to_programs(
    seat: Seat, shared: Served, tmp_path: Path
) -> None:
    grace = author(shared, tmp_path / "grace")
    made = grace.run("rev", "create", "named", "--workspace", "v1")
    assert made.code == 0, made.err

    own = grace.run("rev", "list").out
    audited = seat(Role.AUDITOR).run("rev", "history", "named.v1").out
    viewer = seat(Role.VIEWER)
    others = viewer.run("rev", "list").out
    exact = viewer.run("rev", "history", "named.v1", "-o", "json").json()
    audited_exact = seat(Role.AUDITOR).run("rev", "history", "named.v1", "-o", "json").json()

    assert "Grace Hopper" in own
    assert "\x1b" not in own
    assert "Grace Hopper" in audited
    assert "Grace Hopper" in others
    assert AUTHOR not in others
    assert exact == audited_exact
    assert exact[0]["by"] == AUTHOR, "programs get ids for every caller"


def test_the_log_shows_names_to_those_who_may_see_them(
    seat: Seat, shared: Served, tmp_path: Path
) -> None:
    grace = author(shared, tmp_path / "grace")
    made = grace.run("rev", "create", "logged", "--workspace", "v1", "-o", "json").json()
    created = ("log", "tail", "--type", "RevisionCreated")

    own = grace.run(*created).out.splitlines()[-1]
    audited = seat(Role.AUDITOR).run(*created).out.splitlines()[-1]
    viewed = seat(Role.VIEWER).run(*created).out.splitlines()[-1]

    assert made["metadata"]["name"] == "default.logged.v1"
    assert "  by Grace Hopper" in own
    assert "  by Grace Hopper" in audited
    assert viewed.endswith(f"  by {AUTHOR}")


def test_warns_that_the_package_of_a_new_channel_does_not_exist(seat: Seat) -> None:
    person = seat()

    early = person.run("channel", "create", "early", "--package", "default/late", "--hosts", "a=b")
    person.run("rev", "create", "late", "--workspace", "v1")
    later = person.run("channel", "create", "later", "--package", "late", "--hosts", "c=d")
    slip = person.run("channel", "create", "slip", "--package", "lste", "--hosts", "g=h")
    piped = person.run(
        *("channel", "create", "piped", "--package", "other/late", "--hosts", "e=f", "-o", "json")
    )

    assert (early.code, later.code) == (0, 0), early.err + later.err
    assert early.out == (
        "✔ Channel early carries default/late to a=b: 1 host, then 10 %, then the rest "
        "(the default policy; see: tidegate channel policy early).\n"
    )
    assert "package default/late has no revision yet" in early.err
    assert "try: tidegate rev create late --workspace main" in early.err
    assert later.err == ""
    assert "try: tidegate rev create lste --workspace main\n" in slip.err
    assert piped.json()["channel"] == "piped"
    assert "tidegate rev create late --workspace main --repo other" in piped.err


def test_shows_and_checks_a_policy(seat: Seat, tmp_path: Path) -> None:
    person = seat()
    person.run("channel", "create", "careful", "--package", "late", "--hosts", "a=b")
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text('{"waves": [{"cuont": 1}, {"percent": 120}]}')

    shown = person.run("channel", "policy", "careful")
    example = person.run("channel", "policy", "--example")
    faulty = person.run("channel", "policy", "--check", str(bad), "--channel", "careful")
    good.write_text(example.out)
    sound = person.run("channel", "policy", "--check", str(good))
    same = person.run("channel", "policy", "careful", "--diff", str(good))
    good.write_text('{"waves": [{"name": "canary", "count": 2, "soak_seconds": 300}]}')
    other = person.run("channel", "policy", "careful", "--diff", str(good))
    nothing = person.run("channel", "policy")

    assert json.loads(shown.out)["waves"][0]["name"] == "canary"
    assert faulty.code == 2
    assert faulty.out.splitlines()[:2] == [
        "fault: There is no member cuont in waves[0]; did you mean count?",
        "fault: waves[1].percent is 120; allowed is 1 to 100.",
    ]
    assert (sound.code, sound.out) == (0, f"{good} can be used\n")
    assert same.out.endswith("changes nothing\n")
    assert "waves[0].count: 1 → 2" in other.out
    assert (nothing.code, "--example" in nothing.err) == (2, True)
