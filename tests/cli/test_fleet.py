"""Verbs on channels, hosts, freezes, budgets, quarantine and targets: the requests they send."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.scripted_server import RecordedRequest, ScriptedResponse, serve_script
from tests.cli.shell import Shell
from tidegate.config import check_settings

WHY = ("--reason", "I looked")
REASON = {"reason": "I looked"}

WRITES: list[tuple[tuple[str, ...], str, str, dict[str, Any]]] = [
    (
        ("channel", "create", "stable", "--package", "web", "--hosts", "env=prod"),
        "POST",
        "/v1/channels",
        {"channel": "stable", "package": "web", "selector": "env=prod"},
    ),
    (
        ("channel", "edit", "stable", "--hosts", "*"),
        "PATCH",
        "/v1/channels/stable",
        {"selector": "*"},
    ),
    (("channel", "hold", "stable", *WHY), "POST", "/v1/channels/stable/hold", REASON),
    (("channel", "release", "stable", *WHY), "POST", "/v1/channels/stable/unhold", REASON),
    (("channel", "rollback", "stable", *WHY), "POST", "/v1/channels/stable/rollback", REASON),
    (
        ("channel", "rollback", "stable", "--to", "web.2", *WHY),
        "POST",
        "/v1/channels/stable/rollback",
        {**REASON, "to": "web.2"},
    ),
    (
        ("channel", "rollback", "stable", "--now", "--ignore-budgets", *WHY),
        "POST",
        "/v1/channels/stable/rollback",
        {**REASON, "now": True, "ignore_budgets": True},
    ),
    (
        ("rollout", "open", "stable", "web.3"),
        "POST",
        "/v1/channels/stable/promote",
        {"release_id": "web.3", "reason": ""},
    ),
    (
        ("rollout", "plan", "stable", "web.3"),
        "POST",
        "/v1/rollouts/plan",
        {"channel": "stable", "release_id": "web.3"},
    ),
    (
        ("rollout", "simulate", "stable", "web.3", "--seed", "7", "--fail", "web-01"),
        "POST",
        "/v1/rollouts/simulate",
        {"channel": "stable", "release_id": "web.3", "seed": 7, "failing": ["web-01"]},
    ),
    (
        (
            *("rollout", "simulate", "stable", "web.3", "--from-history"),
            *("--start-at", "2030-12-24T02:00:00+01:00"),
        ),
        "POST",
        "/v1/rollouts/simulate",
        {
            "channel": "stable",
            "release_id": "web.3",
            "seed": 1,
            "failing": [],
            "from_history": True,
            "start_at": "2030-12-24T01:00:00Z",
        },
    ),
    (
        ("host", "enroll", "web-01", "--label", "env=prod"),
        "POST",
        "/v1/hosts/enroll",
        {"host_id": "web-01", "labels": {"env": "prod"}},
    ),
    (  # a host that was revoked keeps its labels
        ("host", "enroll", "web-01"),
        "POST",
        "/v1/hosts/enroll",
        {"host_id": "web-01", "labels": None},
    ),
    (
        ("host", "label", "web-01", "zone=b", "old-"),
        "PUT",
        "/v1/hosts/web-01/labels",
        {"labels": {"env": "prod", "zone": "b"}},
    ),
    (("host", "revoke", "web-01", *WHY), "POST", "/v1/hosts/web-01/revoke", REASON),
    (("host", "retire", "web-01", *WHY), "POST", "/v1/hosts/web-01/retire", REASON),
    (
        ("host", "re-enroll", "web-01", *WHY),
        "POST",
        "/v1/hosts/web-01/re-enroll",
        {"labels": None, **REASON},
    ),
    (
        ("quarantine", "lift", "stable", "sha256:abc", *WHY),
        "POST",
        "/v1/quarantine/lift",
        {"channel": "stable", "closure_hash": "sha256:abc", **REASON},
    ),
    (
        ("freeze", "create", "--channel", "stable", "--until", "2026-12-27T00:00:00Z", *WHY),
        "POST",
        "/v1/freezes",
        {"channels": ["stable"], "until": "2026-12-27T00:00:00Z", **REASON},
    ),
    (("freeze", "delete", "f1", *WHY), "POST", "/v1/freezes/f1/end", REASON),
    (
        ("budget", "create", "db", "--hosts", "role=db", "--max-percent", "10"),
        "PUT",
        "/v1/budgets/db",
        {"selector": "role=db", "max_in_flight": None, "max_in_flight_pct": 10},
    ),
    (
        ("outbox", "redrive", "RELEASE#stable/OUTBOX#x#web.3#c1", *WHY),
        "POST",
        "/v1/outbox/RELEASE%23stable%2FOUTBOX%23x%23web.3%23c1/redrive",
        REASON,
    ),
]


def anything(asked: RecordedRequest) -> ScriptedResponse:
    """A server that has one of each thing, and accepts every write."""
    document = {
        "channel": "stable",
        "host_id": "web-01",
        "freeze_id": "f1",
        "rollout_id": "stable@web.3",
        "labels": {"env": "prod", "old": "x"},
        "token": "enroll-me",
        "state": "Terminal",
        "version": 4,
    }
    return ScriptedResponse(200, document, {"etag": '"4"'})


@pytest.mark.parametrize(("words", "method", "path", "body"), WRITES)
def test_sends_the_request_of_the_command(
    tmp_path: Path, words: tuple[str, ...], method: str, path: str, body: dict[str, Any]
) -> None:
    with serve_script(anything) as server:
        done = Shell(tmp_path / "home", server.url, "t").run(*words)

    last = [asked for asked in server.asked if asked.method != "GET"][-1]
    assert done.code == 0, done.err
    assert (last.method, last.path, last.json()) == (method, path, body)
    assert "idempotency-key" in last.headers
    assert done.out != ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("channel", "edit", "stable"), "nothing to change"),
        (("channel", "edit", "stable", "--policy", "missing.json"), "cannot be read"),
        (("host", "label", "web-01", "nonsense"), "KEY=VALUE"),
        (("budget", "create", "db", "--hosts", "*"), "say --max"),
        (("budget", "create", "db", "--hosts", "*", "--max", "0"), "not in the range"),
    ],
)
def test_sends_no_invalid_arguments(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    with serve_script(anything) as server:
        refused = Shell(tmp_path / "home", server.url, "t").run(*words)

    assert (refused.code, why in refused.err, "try: " in refused.err) == (2, True, True)
    assert [asked.method for asked in server.asked if asked.method != "GET"] == []


def test_reads_a_policy_from_a_file(tmp_path: Path) -> None:
    policy = {"waves": [{"name": "canary", "count": 1}]}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    (tmp_path / "broken.json").write_text("{")
    with serve_script(anything) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        create = ("channel", "create", "stable", "--package", "web", "--hosts", "*", "--policy")
        done = shell.run(*create, str(tmp_path / "policy.json"))
        broken = shell.run(*create, str(tmp_path / "broken.json"))

    assert done.code == 0
    assert server.asked[0].json()["policy"] == policy
    assert (broken.code, "is not JSON" in broken.err) == (2, True)


def test_shows_a_channel_with_its_pin(tmp_path: Path) -> None:
    channel = {
        "channel": "stable",
        "package": "web",
        "selector": "env=prod",
        "policy": {"waves": [{"name": "canary"}, {}], "edges": ["beta"]},
        "held_at": "2026-01-02T03:04:05Z",
        "held_by": "user_1",
        "held_by_name": "Ann",
        "held_reason": "audit",
        "newest_rollout_id": "stable@web.3",
        "newest_state": "Reverted",
        "version": 9,
        "pin": {
            "pinnedReleaseId": "web.3",
            "previousReleaseId": "web.2",
            "confidence": {"level": "high"},
            "provenance": {"kind": "operator_command"},
        },
        "wanted": {
            "release_id": "web.3",
            "what": "promoted",
            "since": "2026-01-02T03:04:05Z",
            "by": "user_2",
            "by_name": "Bob",
            "reason": "spring release",
        },
        "actual": {
            "hosts": 40,
            "silent": 1,
            "unknown": 2,
            "releases": [
                {"release_id": "web.3", "digest": "sha256:" + "3" * 64, "hosts": 11},
                {"release_id": "web.2", "digest": "sha256:" + "2" * 64, "hosts": 26},
                {"release_id": None, "digest": "sha256:" + "a" * 64, "hosts": 1},
            ],
        },
        "edges": [
            {"channel": "beta", "blocks": True, "reason": "beta@web.3 is Active"},
            {"channel": "dev", "blocks": False, "soak_seconds": 3600},
        ],
        "windows": ["nights"],
        "protection": {},
    }
    with serve_script(lambda asked: ScriptedResponse(200, channel)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("channel", "show", "stable")

    assert "■ held" in shown.out
    assert "audit (Ann, 2026-01-02 03:04:05Z)" in shown.out
    assert "web.3, promoted 2026-01-02 03:04:05Z by Bob: spring release" in shown.out
    assert (
        "web.3 on 11 of 40 hosts, web.2 on 26, sha256:aaaaaaaaaaaa… on 1, not known on 2, 1 silent"
    ) in shown.out
    assert "↩ Stopped" in shown.out
    assert "canary, wave-2" in shown.out
    assert "operator_command, high confidence" in shown.out
    assert "beta (blocks: beta@web.3 is Active), dev for 1 h" in shown.out
    assert "nights" in shown.out
    assert "1 other person, break-glass allowed" in shown.out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            ("--kind", "webhook", "--to", 'https://example.com/"hook"', "--secret-file", "s"),
            {"kind": "webhook", "url": 'https://example.com/"hook"', "secret_file": "s"},
        ),
        (
            ("--kind", "command", "--to", "deploy", "--to", "C:\\ü"),
            {"kind": "command", "program": ["deploy", "C:\\ü"]},
        ),
        (("--kind", "file", "--to", "effects"), {"kind": "file", "directory": "effects"}),
    ],
)
def test_writes_the_section_of_the_settings_that_adds_a_target(
    tmp_path: Path, words: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    shell = Shell(tmp_path / "home", "http://127.0.0.1:9", "t")  # no request is sent
    printed = shell.run("target", "create", "chat", *words)
    document = shell.run("target", "create", "chat", *words, "-o", "json")

    assert printed.code == 0, printed.err
    assert tomllib.loads(printed.out) == {"targets": {"chat": wanted}}
    assert json.loads(document.out) == {"targets": {"chat": wanted}}
    settings = check_settings({"data": "d", **tomllib.loads(printed.out)})
    assert settings.targets["chat"].kind == wanted["kind"]
    assert "serve --config" in printed.err


@pytest.mark.parametrize(
    "words",
    [
        ("Chat", "--kind", "file", "--to", "x"),
        ("chat", "--kind", "webhook", "--to", "https://example.com"),
        ("chat", "--kind", "file", "--to", "x", "--secret-file", "s"),
        ("chat", "--kind", "file", "--to", "x", "--to", "y"),
        ("chat", "--kind", "file", "--to", "x\ny = 1"),
        ("chat", "--kind", "file", "--to", ""),
    ],
)
def test_writes_no_section_that_a_server_would_refuse(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    refused = Shell(tmp_path / "home", "http://127.0.0.1:9", "t").run("target", "create", *words)

    assert (refused.code, refused.out) == (2, "")
    assert "tidegate target create --help" in refused.err


def test_names_the_target_that_did_not_answer(tmp_path: Path) -> None:
    with serve_script(
        lambda asked: ScriptedResponse(200, {"ok": False, "detail": "timed out"})
    ) as server:
        failed = Shell(tmp_path / "home", server.url, "t").run("target", "test", "chat")

    assert (failed.code, "timed out" in failed.err) == (6, True)


def test_prints_only_the_enrollment_token(tmp_path: Path) -> None:
    with serve_script(anything) as server:
        made = Shell(tmp_path / "home", server.url, "t").run("host", "enroll", "web-01")

    assert made.out == "enroll-me\n"
    assert "this token is shown only once" in made.err


def test_shows_wanted_and_running_releases_of_hosts_by_name(tmp_path: Path) -> None:
    hosts = [
        {
            "host_id": "web-01",
            "status": "enrolled",
            "releases": [
                {"channel": "db", "wanted": "pg.1"},
                {"channel": "stable", "wanted": "web.3", "runs": "web.2", "digest": "sha256:x"},
            ],
        },
        {
            "host_id": "web-02",
            "status": "enrolled",
            "releases": [{"channel": "old", "digest": "sha256:0123456789abcdef"}],
        },
        {"host_id": "web-03", "status": "enrolled"},
    ]

    def script(asked: RecordedRequest) -> ScriptedResponse:
        is_list = asked.path.partition("?")[0] == "/v1/hosts"
        body = {"items": hosts, "next": None} if is_list else hosts[0]
        return ScriptedResponse(200, body)

    with serve_script(script) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        listed = shell.run("host", "list").out.splitlines()
        shown = shell.run("host", "show", "web-01").out

    assert [line.split()[:5] for line in listed[:1]] == [
        ["HOST", "STATE", "WANTED", "RUNS", "LABELS"]
    ]
    assert "pg.1, web.3  –, web.2" in listed[1]
    assert "–            sha256:0123456789ab" in listed[2]
    assert "db: wanted pg.1, runs –" in shown
    assert "stable: wanted web.3, runs web.2" in shown


def test_shows_who_approved_a_move_of_a_channel(tmp_path: Path) -> None:
    moved = {
        "recordedAt": "2026-05-01T06:00:00Z",
        "eventType": "registered",
        "what": "promoted",
        "releaseId": "web.3",
        "by": "user_1",
        "byName": "Dan",
        "approvedBy": ["user_2", "user_3"],
        "approvedByNames": ["Cem", None],
    }
    page = {"items": [moved], "next": None}
    with serve_script(lambda asked: ScriptedResponse(200, page)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("channel", "history", "stable")

    assert "APPROVED BY" in shown.out
    assert "promoted" in shown.out
    assert "registered" not in shown.out
    assert "Cem, user_3" in shown.out


def test_prints_what_changed_in_a_watched_list(tmp_path: Path) -> None:
    pages = [
        [{"host_id": "a", "status": "enrolled"}],
        [{"host_id": "a", "status": "enrolled"}, {"host_id": "b", "status": "revoked"}],
    ]
    count = 0

    def script(asked: RecordedRequest) -> ScriptedResponse:
        nonlocal count
        count += 1
        return ScriptedResponse(200, {"items": pages[min(count, 2) - 1], "next": None})

    with serve_script(script) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        with shell.start("host", "list", "--watch", "-o", "jsonl") as watching:
            assert watching.stdout is not None
            try:
                lines = [json.loads(watching.stdout.readline())["host_id"] for _ in range(2)]
            finally:
                watching.kill()

    assert lines == ["a", "b"]


def test_a_watched_status_ignores_the_time_of_the_answer(tmp_path: Path) -> None:
    same = {"is_well": True, "channels": [], "attention": [], "notices": []}
    answers = iter([{"at": "1", **same}, {"at": "2", **same}])

    def script(asked: RecordedRequest) -> ScriptedResponse:
        return ScriptedResponse(200, next(answers, {"at": "3", **same, "is_well": False}))

    with serve_script(script) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        with shell.start("status", "--watch", "-o", "jsonl") as watching:
            assert watching.stdout is not None
            try:
                lines = [json.loads(watching.stdout.readline())["at"] for _ in range(2)]
            finally:
                watching.kill()

    assert lines == ["1", "3"]


LADDER = {
    "channel": "stable",
    "wanted": "web.4",
    "choice": "web.2",
    "refusal": None,
    "rungs": [
        {
            "release_id": release,
            "digest": "sha256:x",
            "rollout_id": f"stable@{release}",
            "succeeded_at": "2026-11-09T10:00:00Z",
            "hosts": 40,
            "skipped": skipped,
        }
        for release, skipped in (
            ("web.4", "web.4 is what stable wants now"),
            ("web.3", "Ann rolled back from web.3 at 2026-11-10 03:12 UTC"),
            ("web.2", None),
            ("web.1", None),
        )
    ],
}


def test_shows_what_a_rollback_would_take_and_why_it_skips_others(tmp_path: Path) -> None:
    nothing = LADDER | {"choice": None, "refusal": "Nothing to go back to on stable: …"}
    answers = iter((LADDER, LADDER, nothing))
    with serve_script(lambda asked: ScriptedResponse(200, next(answers))) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        shown = shell.run("channel", "rollback", "stable", "--dry-run")
        machine = shell.run("channel", "rollback", "stable", "--dry-run", "-o", "json")
        none = shell.run("channel", "rollback", "stable", "--dry-run")
        unsaid = shell.run("channel", "rollback", "stable")

    assert {asked.method for asked in server.asked} == {"GET"}
    lines = shown.out.splitlines()
    assert (shown.code, len(lines)) == (0, 5), shown
    assert "web.4 is what stable wants now" in lines[1]
    assert "Ann rolled back from web.3" in lines[2]
    assert lines[3].endswith("takes it")
    assert "would go to web.2; nothing was changed" in shown.err
    assert machine.json()["choice"] == "web.2"
    assert (none.code, "Nothing to go back to on stable" in none.err) == (1, True)
    assert (unsaid.code, "Missing option '--reason'" in unsaid.err) == (2, True)


@pytest.mark.parametrize(
    "typed",
    [
        "channel rollback stable --now",
        "channel rollback stable --to web.2 --now --ignore-budgets --lift-quarantine",
        "channel rollback stable --now --break-glass",
        "channel promote stable web.7 --override window --override freeze",
    ],
)
def test_suggests_the_typed_command_with_the_missing_reason(typed: str, tmp_path: Path) -> None:
    """People copy the hint at three in the morning: an option that it drops is not applied."""
    with serve_script(lambda asked: ScriptedResponse(200, {})) as server:
        said = Shell(tmp_path / "home", server.url, "secret").run(*typed.split())

    assert (said.code, server.asked) == (2, [])
    assert f"tidegate {typed} --reason …" in said.err
    assert "secret" not in said.err
