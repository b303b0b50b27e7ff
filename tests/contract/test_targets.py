"""Targets with real receivers: a server on loopback, a program, a directory."""

from __future__ import annotations

import json
import socket
import sys
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from tests.contract.address import Address
from tests.contract.outbox_world import OPERATIONS, T0, opened, outbox_world_on
from tests.contract.webhook_receiver import SECRET, reply, serve_webhooks, verified, webhook
from tests.servers.certificates import Authority, secured
from tests.servers.process import free_port, until
from tidegate.clock import system_clock
from tidegate.control.checked_http import ANSWER_BYTES_MAX
from tidegate.control.outbox.targets import Effect, Target, TargetDone, TargetFailed, Unobservable
from tidegate.control.outbox.targets.command import CommandTarget
from tidegate.control.outbox.targets.file import FileTarget
from tidegate.control.outbox.targets.webhook import STATE_TYPE, WebhookTarget, cloud_event
from tidegate.control.webhooks import sign_webhook, to_secret
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.outbox.states import IntentState, RequestedState
from tidegate.errors import InvalidInput
from tidegate.public_addresses import (
    DestinationRefused,
    is_public,
    parse_destination,
    resolve_destination,
)

ALIAS = OPERATIONS[0]
OTHER_SECRET = to_secret(b"another secret, of 32 bytes too.")
KEY = "web:web.1:lambda_alias_update:0"
DRIPS_MAX = 1_200
NO_ENGINE = {"engines": None, "reason": "a target knows no store"}


def effect(sequence: int = 0, release_id: str = "web.1") -> Effect:
    state = RequestedState(release_id=release_id, status="active")
    return Effect("web", ALIAS, release_id, state, sequence, T0)


# ── a receiver ────────────────────────────────────────────────────────────────────────────────────


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────


def named_hooks(port: int, **settings: Any) -> WebhookTarget:
    """Build a webhook to hooks.test, whose address is that of the receiver."""
    return WebhookTarget(
        f"https://hooks.test:{port}/hooks",
        (SECRET,),
        allowed=(f"hooks.test:{port}",),
        resolve=lambda host, port: ("127.0.0.1",),
        timeout_seconds=60.0,
        **settings,
    )


@pytest.mark.req("RS-8", **NO_ENGINE)
def test_sends_over_tls_to_the_host_that_the_certificate_names(tmp_path: Path) -> None:
    """The address was looked up once; the certificate must still match the name."""
    authority = Authority(tmp_path)
    with serve_webhooks(context=secured(authority.issue("hooks.test"))) as server:
        target = named_hooks(server.server_address[1], trust=authority.trust())

        assert target.perform(KEY, effect()) == TargetDone("status 204")

    ((_, headers, body),) = server.requests
    assert headers["host"].startswith("hooks.test")
    assert verified(SECRET, headers, body, system_clock()) == json.loads(body)


@pytest.mark.req("RS-8", **NO_ENGINE)
@pytest.mark.parametrize(
    ("named", "trusted"),
    [("hooks.test", False), ("elsewhere.test", True)],
    ids=["by an untrusted issuer", "for another host"],
)
def test_sends_nothing_to_a_host_that_cannot_prove_its_name(
    tmp_path: Path, named: str, trusted: bool
) -> None:
    authority = Authority(tmp_path)
    trust = authority.trust() if trusted else None
    with serve_webhooks(context=secured(authority.issue(named))) as server:
        outcome = named_hooks(server.server_address[1], trust=trust).perform(KEY, effect())

    assert outcome == TargetFailed("no answer: ConnectError")
    assert server.requests == []


# ── webhooks ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-9", **NO_ENGINE)
def test_sends_a_signed_cloud_event_that_its_receiver_can_verify() -> None:
    with serve_webhooks() as server:
        outcome = webhook(server.place).perform(KEY, effect(7))

    ((path, headers, body),) = server.requests
    assert outcome == TargetDone("status 204")
    assert path == "/hooks?x=1"
    assert headers["host"] == server.place
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["webhook-id"] == KEY
    assert not {name for name in headers if name.startswith("tidegate-")}
    event = verified(SECRET, headers, body, system_clock())
    for secret, changed in ((OTHER_SECRET, body), (SECRET, body + b" ")):
        with pytest.raises(WebhookVerificationError):
            verified(secret, headers, changed, system_clock())
    assert event["data"]["requestedState"] == {"releaseId": "web.1", "status": "active"}
    assert (event["specversion"], event["id"], event["subject"]) == ("1.0", KEY, "web")
    assert (event["sequence"], event["time"]) == ("7", "2026-04-24T19:00:00.000000Z")
    assert cloud_event(KEY, effect(7)) == body


def test_a_receiver_distinguishes_an_old_request_from_a_new_one() -> None:
    headers = sign_webhook((SECRET,), KEY, T0, b"{}")

    assert verified(SECRET, headers, b"{}", T0 + timedelta(minutes=4)) == {}
    with pytest.raises(WebhookVerificationError):
        verified(SECRET, headers, b"{}", T0 + timedelta(minutes=6))


@pytest.mark.req("NT-2", **NO_ENGINE)
def test_two_secrets_sign_while_a_receiver_gets_the_new_one() -> None:
    with serve_webhooks() as server:
        place = server.place
        both = (OTHER_SECRET, SECRET)
        target = WebhookTarget(f"http://{place}/", both, allowed=(place,))
        assert target.perform(KEY, effect()) == TargetDone("status 204")

    ((_, headers, body),) = server.requests
    for secret in both:
        assert verified(secret, headers, body, system_clock()) == json.loads(body)


@pytest.mark.req("RS-8", "RS-10")
def test_a_receiver_that_restarts_gets_each_effect_under_one_key(
    address: Address | None,
) -> None:
    port = free_port()
    with opened(address) as store:
        outbox_world = outbox_world_on(store)
        outbox_world.pin("web.1", ALIAS)
        target = webhook(f"127.0.0.1:{port}", timeout_seconds=20.0)
        worker = outbox_world.worker({ALIAS: target})

        worker.work()
        outbox_world.advance(1)
        worker.work()
        assert outbox_world.shown(ALIAS).last_error == "no answer: ConnectError"
        outbox_world.advance(2)
        with serve_webhooks(port, lambda handler: reply(handler, 503)) as server:
            worker.work()
            outbox_world.advance(4)
            server.answer = lambda handler: reply(handler, 200)
            worker.work()

        assert (outbox_world.shown(ALIAS).state, outbox_world.shown(ALIAS).attempts) == (
            IntentState.DONE,
            4,
        )
        assert [headers["webhook-id"] for _, headers, _ in server.requests] == [KEY] * 2
        assert len({body for *_, body in server.requests}) == 1
        outbox_world.prove()


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (410, False), (429, True), (500, True)],
)
def test_distinguishes_temporary_from_permanent_failures(status: int, retryable: bool) -> None:
    with serve_webhooks(answer=lambda handler: reply(handler, status, b"secret=1")) as server:
        assert webhook(server.place).perform(KEY, effect()) == TargetFailed(
            f"status {status}", retryable
        )


def test_follows_no_redirect_and_keeps_no_cookie() -> None:
    with serve_webhooks() as decoy:

        def away(handler: BaseHTTPRequestHandler) -> None:
            where = {"location": f"http://{decoy.place}/", "set-cookie": "a=b"}
            reply(handler, 307, b"", **where)

        with serve_webhooks(answer=away) as server:
            target = webhook(server.place, allowed=(server.place, decoy.place))
            assert target.perform(KEY, effect()) == TargetFailed("status 307", False)
            target.perform(KEY, effect())

    assert decoy.requests == []
    assert "cookie" not in server.requests[1][1]


def test_ends_an_exchange_that_sends_too_slowly() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(DRIPS_MAX):
            time.sleep(0.05)
            try:
                handler.wfile.write(f"x-{number}: 1\r\n".encode())
            except OSError:
                return

    with serve_webhooks(answer=drip) as server:
        outcome = webhook(server.place, timeout_seconds=0.3).perform(KEY, effect())

        assert outcome == TargetFailed("no answer: ReadTimeout"), "not that the other end closed"


def test_limits_how_much_of_an_answer_it_reads() -> None:
    sent = []

    def flood(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(4_000):
                handler.wfile.write(b"x" * 16_384)
                sent.append(16_384)
        except OSError:
            pass

    with serve_webhooks(answer=flood) as server:
        assert webhook(server.place).perform(KEY, effect()) == TargetDone("status 200")

    assert sum(sent) < 4_000 * 16_384
    assert ANSWER_BYTES_MAX == 65_536


def test_observes_through_a_signed_event_and_accepts_only_the_declared_shape() -> None:
    state = json.dumps({"idempotencyKey": KEY, "state": {"releaseId": "web.1"}}).encode()
    with serve_webhooks(answer=lambda handler: reply(handler, 200, state)) as server:
        target = webhook(server.place, observable=True)
        assert target.observe("web", ALIAS) == Observation(KEY, {"releaseId": "web.1"})
        ((_, headers, body),) = server.requests
        event = verified(SECRET, headers, body, system_clock())
        assert (event["type"], event["id"]) == (STATE_TYPE, headers["webhook-id"])
        assert event["data"] == {"scope": "web", "operation": ALIAS}
        assert webhook(server.place).observe("web", ALIAS) is None
        server.answer = lambda handler: reply(handler, 200, b"[1]")
        with pytest.raises(Unobservable):
            target.observe("web", ALIAS)
        server.answer = lambda handler: reply(handler, 500)
        with pytest.raises(Unobservable):
            target.observe("web", ALIAS)
    with pytest.raises(Unobservable):
        target.observe("web", ALIAS)


@pytest.mark.parametrize(
    ("secret", "found"),
    [("whsec_c2hvcnQ=", "found 5"), ("plain words of an older form", "base64"), ("", "found 0")],
)
def test_refuses_a_secret_that_receivers_would_refuse(secret: str, found: str) -> None:
    with pytest.raises(InvalidInput, match=found):
        WebhookTarget("https://hooks.example.com/", (secret,))


# ── addresses ─────────────────────────────────────────────────────────────────────────────────────

BYPASSES = (
    *("http://127.0.0.1/", "https://127.0.0.1/", "https://127.1/", "https://2130706433/"),
    *("https://0x7f000001/", "https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://017700000001/"),
    *("https://127.0.0.1./", "https://0/", "https://0.0.0.0/", "https://127.0.0.1:443@x.example/"),
    *("https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::7f00:1]/"),
    *("https://[::ffff:7f00:1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/"),
    *(
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1]/",
        "https://[fc00::1]/",
        "https://[ff02::1]/",
    ),
    *(
        "https://[fd00:ec2::254]/",
        "https://10.0.0.1/",
        "https://172.16.0.1/",
        "https://192.168.1.1/",
    ),
    *("https://169.254.169.254/", "https://100.100.100.200/", "https://168.63.129.16/"),
    *(
        "https://192.0.0.192/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://240.0.0.1/",
    ),
    *("https://198.18.0.1/", "https://192.0.2.1/", "https://100.64.0.1/", "https://192.88.99.1/"),
    *("https://user:pass@hooks.example.com/", "https://hooks.example.com@127.0.0.1/"),
    *("https://127.0.0.1\\@hooks.example.com/", "https://hooks.example.com#@127.0.0.1/"),
    *(
        "https://hooks.example.com:22/",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:x/",
    ),
    *("https://hooks.example.com:99999/", "http://hooks.example.com/", "ftp://hooks.example.com/"),
    *(
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "//127.0.0.1/",
        "https:/127.0.0.1/",
        "https:///x",
    ),
    *("", "https://", "https://hooks example.com/", "https://hooks.example.com/\r\nhost: x"),
    *("https://ⓛocalhost/", "https://１27.0.0.1/", "https://-x.example/", "https://x..example/"),
    *("https://hooks.example.com./", "https://example.0x7f/", "https://example.127/"),
    *("https://localhost/", "https://metadata.example/", "https://rebinding.example/"),
    *("https://half.example/", "https://[::1", "https://[::1]x/", "https://0x/"),
)
NAMES = {
    "localhost": ("127.0.0.1", "::1"),
    "metadata.example": ("169.254.169.254",),
    "rebinding.example": ("10.0.0.7",),
    "half.example": ("93.184.216.34", "127.0.0.1"),  # one good address does not excuse the other
    "hooks.example.com": ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"),
}


def look_up(host: str, port: int) -> tuple[str, ...]:
    return NAMES.get(host, (host,))


@pytest.mark.parametrize("url", BYPASSES)
def test_refuses_urls_that_lead_to_an_address_that_is_not_public(url: str) -> None:
    """C-22: "refuse loopback, link-local, private, ULA, multicast, metadata"."""
    with pytest.raises(DestinationRefused):
        resolve_destination(parse_destination(url), look_up)


def test_accepts_a_public_address_and_hosts_allowed_by_name() -> None:
    public = parse_destination("https://hooks.example.com/x?y=%20z")
    assert resolve_destination(public, look_up) == NAMES["hooks.example.com"]
    assert public.url == "https://hooks.example.com:443/x?y=%20z"
    assert (
        parse_destination("https://[2606:2800:220:1::1]/").url
        == "https://[2606:2800:220:1::1]:443/"
    )
    allowed = ("127.0.0.1:8080",)
    assert resolve_destination(parse_destination("http://127.0.0.1:8080/", allowed), look_up) == (
        "127.0.0.1",
    )
    for other in ("http://127.0.0.1:8081/", "http://127.0.0.2:8080/", "https://127.0.0.1/"):
        with pytest.raises(DestinationRefused):
            resolve_destination(parse_destination(other, allowed), look_up)
    assert len(BYPASSES) >= 60
    assert not is_public("not an address")


def test_connects_to_the_address_that_was_checked_and_to_no_other() -> None:
    """A resolver with another answer the second time is not asked again."""
    asked = []

    def rebinding(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.1",) if len(asked) == 1 else ("127.0.0.2",)

    with serve_webhooks() as server:
        port = server.server_address[1]
        place = f"rebinding.example:{port}"
        target = webhook(place, resolve=rebinding)
        assert target.perform(KEY, effect()) == TargetDone("status 204")

    assert asked == ["rebinding.example"]
    assert server.requests[0][1]["host"] == place


def test_connects_to_nothing_when_a_name_turns_private() -> None:
    with serve_webhooks() as decoy:
        target = WebhookTarget(
            "https://hooks.example.com/", (SECRET,), resolve=lambda host, port: ("127.0.0.1",)
        )
        outcome = target.perform(KEY, effect())

    assert isinstance(outcome, TargetFailed)
    assert not outcome.retryable
    assert decoy.requests == []
    with pytest.raises(DestinationRefused):
        WebhookTarget(f"http://{decoy.place}/", (SECRET,))


def test_retries_a_name_that_has_no_address_now() -> None:
    def nowhere(host: str, port: int) -> tuple[str, ...]:
        raise socket.gaierror("no such name")

    target = WebhookTarget("https://hooks.example.com/", (SECRET,), resolve=nowhere)

    assert target.perform(KEY, effect()) == TargetFailed("no answer: gaierror")


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(("import json, os, sys, time", *lines))]


def test_runs_a_program_without_a_shell_and_without_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRET", "hunter2")
    note = tmp_path / "note"
    lines = (
        f"note = open({str(note)!r}, 'w')",
        "json.dump([sys.argv[1:], dict(os.environ), json.load(sys.stdin)], note)",
    )
    words = ["$HOME", "; touch x", "`id`"]
    target = CommandTarget([*program(*lines), *words], environment={"REGION": "local"})

    assert target.perform(KEY, effect(3)) == TargetDone()

    argv, environment, given = json.loads(note.read_text())
    assert argv == words
    environment.pop("LC_CTYPE", None)  # the interpreter's own
    assert environment == {
        "REGION": "local",
        "TIDEGATE_IDEMPOTENCY_KEY": KEY,
        "TIDEGATE_SCOPE": "web",
        "TIDEGATE_OPERATION": ALIAS,
    }
    assert (given["sequence"], given["requestedState"]["releaseId"]) == (3, "web.1")


@pytest.mark.parametrize(("status", "retryable"), [(1, True), (64, False), (75, True), (78, False)])
def test_reads_the_exit_status_of_a_program(status: int, retryable: bool) -> None:
    target = CommandTarget(program("sys.stderr.write('no luck')", f"sys.exit({status})"))

    assert target.perform(KEY, effect()) == TargetFailed(
        f"exit status {status}: no luck", retryable
    )


def test_ends_a_program_that_takes_too_long_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "note"
    lines = (
        "import subprocess",
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
        f"open({str(note)!r}, 'w').write(f'{{child.pid}}\\n')",
        "time.sleep(60)",
    )
    for seconds in (0.5, 2, 8, 32):  # until it has started its child
        target = CommandTarget(program(*lines), timeout_seconds=seconds)
        assert target.perform(KEY, effect()) == TargetFailed(
            "the program took too long and was ended"
        )
        if note.exists() and note.read_text().endswith("\n"):
            break

    assert until(lambda: not is_running(int(note.read_text())), seconds_max=60)


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_missing_program_is_a_failure_and_a_string_is_not_a_command() -> None:
    outcome = CommandTarget(["./no-such-program"]).perform(KEY, effect())
    assert outcome == TargetFailed("the program did not start: No such file or directory")
    for wrong in ("ls -l", [], ["a\0b"]):
        with pytest.raises(InvalidInput):
            CommandTarget(wrong)


def test_observes_through_a_program() -> None:
    state = json.dumps({"idempotencyKey": KEY, "state": {"releaseId": "web.1"}})
    seeing = CommandTarget(program(), observing=program(f"print({state!r})"))
    assert seeing.observe("web", ALIAS) == Observation(KEY, {"releaseId": "web.1"})
    assert CommandTarget(program()).observe("web", ALIAS) is None
    for broken in (program("sys.exit(1)"), program("print('?')"), ["./no-such-program"]):
        with pytest.raises(Unobservable):
            CommandTarget(program(), observing=broken).observe("web", ALIAS)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


def test_replaces_a_file_atomically_once_per_key_and_never_by_an_older_version(
    tmp_path: Path,
) -> None:
    target = FileTarget(tmp_path)
    assert target.observe("web", ALIAS) == Observation()

    assert target.perform(KEY, effect(1)) == TargetDone()
    file = tmp_path / "web" / f"{ALIAS}.json"
    written = file.stat().st_mtime_ns, file.stat().st_ino
    assert target.perform(KEY, effect(1)) == TargetDone("it exists already")
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == written
    newer = "web:web.2:lambda_alias_update:2"
    assert target.perform(newer, effect(2, "web.2")) == TargetDone()
    assert target.perform(KEY, effect(1)) == TargetFailed("a newer effect is there", False)

    seen = target.observe("web", ALIAS)
    assert seen == Observation(newer, {"releaseId": "web.2", "status": "active"})
    assert [path.name for path in (tmp_path / "web").iterdir()] == [file.name]


@pytest.mark.parametrize("scope", ["../web", "/web", ".", "..", "a/b", "", "a\0b", "Web"])
def test_writes_only_inside_its_directory(tmp_path: Path, scope: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    target: Target = FileTarget(home)
    strange = Effect(scope, ALIAS, "web.1", RequestedState(release_id="web.1"), 0, T0)

    with pytest.raises(InvalidInput):
        target.perform(KEY, strange)
    with pytest.raises(InvalidInput):
        target.observe("web", f"../{ALIAS}")

    assert list(home.iterdir()) == []
    assert list(tmp_path.iterdir()) == [home]


def test_follows_no_link_and_trusts_no_file_of_others(tmp_path: Path) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "web").symlink_to(away)
    (home / "api").mkdir()
    (home / "api" / f"{ALIAS}.json").write_text("{}")
    target = FileTarget(home)

    linked = target.perform(KEY, effect())
    strange = Effect("api", ALIAS, "web.1", RequestedState(release_id="web.1"), 0, T0)
    foreign = target.perform(KEY, strange)

    assert isinstance(linked, TargetFailed)
    assert list(away.iterdir()) == []
    assert foreign == TargetFailed("the file holds something that is not ours", False)
    with pytest.raises(Unobservable):
        target.observe("api", ALIAS)
    with pytest.raises(InvalidInput):
        FileTarget(tmp_path / "nowhere")
