"""The golden files of messages: what each kind of target is sent for some events.

.venv/bin/python -m tests.domain.golden_messages     writes them again; review the diff
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tidegate.control.notifications.targets import cloud_event
from tidegate.domain.notifications import renderings
from tidegate.domain.notifications.events import severity_of
from tidegate.domain.notifications.messages import InstallationRef, Message, to_digest, to_message
from tidegate.domain.notifications.notices import Notice, NoticeCause, NoticeHosts, NoticeWave
from tidegate.domain.rollouts.facts import HostCounts
from tidegate.domain.rollouts.states import Outcome

DIRECTORY = Path(__file__).parent.parent / "fixtures" / "messages"
T0 = datetime(2026, 11, 9, 10, 0, tzinfo=UTC)
HERE = InstallationRef("tidegate.example.com", "https://tidegate.example.com", "5bf0c2")
NAMES = {"user_ann": "Ann <b>&", "user_bob": "Bob"}


def notice(event: str, position: int, **members: Any) -> Notice:
    return Notice(
        event=event,
        severity=severity_of(event),
        at=T0 + timedelta(minutes=position),
        position=position,
        **members,
    )


PROD = {"channel": "prod", "release": "web.4", "rollout_id": "prod@web.4", "digest": "sha256:4"}
NOTICES = (
    notice(
        "rollout.halted",
        12,
        **PROD,
        state="Active",
        wave=NoticeWave(2, "early", 3),
        counts=HostCounts(hosts=40, converged=11),
        hosts=NoticeHosts(1, ("h-03",)),
        cause=NoticeCause(host="h-03", failure="probes", probe="http", detail="status 502 <x>"),
    ),
    notice(
        "rollout.succeeded",
        23,
        **PROD,
        state="Terminal",
        outcome=Outcome.SUCCEEDED,
        opened_at=T0,
        counts=HostCounts(hosts=40, converged=38, tolerated=1, skipped=1),
    ),
    notice(
        "revision.proposed",
        30,
        revision="default/web.v5",
        actor="user_ann",
        reason="see [INC-7](http://x) & <!channel>",
    ),
    notice("hosts.silent", 40, channel="prod", hosts=NoticeHosts(37, ("h-01", "h-02"))),
    notice("channel.held", 41, channel="prod", actor="user_gone", reason="outage"),
    *(
        notice(
            event,
            number,
            channel="prod",
            subject="R-3f9a1c22d0",
            asks="promote web.4 on prod",
            **more,
        )
        for number, (event, more) in enumerate(
            {
                "request.made": {"actor": "user_ann", "reason": "hotfix"},
                "request.approved": {"actor": "user_bob"},
                "request.rejected": {"actor": "user_bob", "reason": "not today"},
                "request.withdrawn": {"actor": "user_ann"},
                "request.expired": {},
                "request.voided": {"reason": "the policy of prod was changed"},
                "request.executed": {"actor": "user_bob"},
                "emergency.used": {"actor": "user_bob", "gate": "approval", "reason": "it burns"},
                "emergency.unreviewed": {},
                "emergency.reviewed": {"actor": "user_ann", "state": "accepted"},
            }.items(),
            50,
        )
    ),
)


def messages() -> list[Message]:
    """Build a message about each notice, and a digest of many."""
    many = [notice("channel.held", number, channel="dev") for number in range(100, 136)]
    digest = to_digest((*many, NOTICES[0]), "ops", HERE)
    return [*(to_message(item, "ops", HERE, NAMES.get) for item in NOTICES), digest]


RENDERINGS: dict[str, Callable[[Message], Any]] = {
    "webhook": lambda message: json.loads(cloud_event(message)),
    "slack": renderings.render_slack,
    "teams": renderings.render_teams,
    "pagerduty": lambda message: renderings.render_pagerduty(message, "R0UT1NG"),
    "grafana": renderings.render_grafana,
    "mail": lambda message: asdict(renderings.render_mail(message)),
}


def golden(kind: str) -> str:
    """Return the expected content of the golden file of a kind."""
    bodies = [RENDERINGS[kind](message) for message in messages()]
    return json.dumps(bodies, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for kind in RENDERINGS:
        (DIRECTORY / f"{kind}.json").write_text(golden(kind))


if __name__ == "__main__":
    main()
