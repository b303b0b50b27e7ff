"""Addresses that a webhook must not reach, in every spelling: none leads to a connection.

A listener on loopback counts connections. The server refuses the address when the target is created
or when it sends. It also refuses a harmless name that an attacker's name server resolves to a
forbidden address.
"""

from __future__ import annotations

import socket
from threading import Thread

from bench.attack.hostile_values import REBOUND, WEBHOOK_FORMS
from bench.trials import Findings, Trial
from tidegate.control.outbox.targets import TargetFailed
from tidegate.control.outbox.targets.webhook import WebhookTarget
from tidegate.control.webhooks import to_secret
from tidegate.errors import Invalid
from tidegate.public_addresses import DestinationRefused, is_public

SECRETS = (to_secret(b"0123456789abcdef01234567"),)
SECONDS = 2.0
PUBLIC = ("1.1.1.1", "8.8.8.8", "2606:4700:4700::1111")


def run(trial: Trial) -> Findings:
    findings = Findings()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        met: list[object] = []
        Thread(target=_count, args=(listener, met), daemon=True).start()
        port = listener.getsockname()[1]
        for form in WEBHOOK_FORMS:
            url = form.replace("PORT", str(port))
            findings.counts["forms"] += 1
            if not _is_refused(url, findings):
                findings.failures.append(f"a webhook may go to {form!r}")
        for address in REBOUND:
            findings.counts["forms"] += 1
            if not _is_rebound_refused(address):
                findings.failures.append(f"a name that resolves to {address} gets a request")
        if met:
            findings.failures.append(f"{len(met)} connections to loopback")
    findings.failures += [f"{text} is not public" for text in PUBLIC if not is_public(text)]
    return findings


def _count(listener: socket.socket, met: list[object]) -> None:
    while True:
        try:
            met.append(listener.accept())
        except OSError:
            return


def _is_refused(url: str, findings: Findings) -> bool:
    def resolve(host: str, port: int) -> tuple[str, ...]:
        found = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
        return tuple(str(address[4][0]) for address in found)

    try:
        target = WebhookTarget(url, SECRETS, timeout_seconds=SECONDS, resolve=resolve)
    except Invalid:
        findings.counts["refused when made"] += 1
        return True
    try:
        answer = target.try_out()
    except (DestinationRefused, UnicodeError):
        return True
    # A name that does not resolve leads to no connection either.
    return isinstance(answer, TargetFailed) and (
        not answer.retryable or "gaierror" in str(answer) or "OSError" in str(answer)
    )


def _is_rebound_refused(address: str) -> bool:
    target = WebhookTarget(
        "https://hooks.example.com/",
        SECRETS,
        timeout_seconds=SECONDS,
        resolve=lambda host, port: ("1.1.1.1", address),
    )
    answer = target.try_out()
    return isinstance(answer, TargetFailed) and not answer.retryable
