"""The checklist of a new installation: where each step is done, and with which command."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidegate.control.queries.first_steps import FirstSteps
from tidegate.dashboard.view_models import overview_screen


class _Step(Struct, frozen=True):
    name: str  # a field of FirstSteps
    title: str
    text: str
    href: str
    command: str


STEPS: Final = (
    _Step(
        "repository",
        "Create a repository",
        "It holds your packages and says how many approvals a revision needs.",
        "/settings",
        "tidegate repo create main",
    ),
    _Step(
        "revision",
        "Publish a first revision",
        "Draft the files of a package, propose it, and let another person approve it.",
        "/releases",
        "tidegate rev create web --workspace first",
    ),
    _Step(
        "channel",
        "Create a channel",
        "It carries a package to the hosts that its selector matches, wave by wave.",
        "/channels",
        "tidegate channel create stable --package web --hosts env=prod",
    ),
    _Step(
        "host",
        "Enroll a host",
        "Its agent fetches orders and reports the results.",
        "/joins",
        "tidegate host enroll web-01 --label env=prod",
    ),
    _Step(
        "rollout",
        "Promote the revision",
        "The channel is pinned to it and its rollout opens. Plan it first to see the waves.",
        "/plan",
        "tidegate channel promote stable web.1",
    ),
    _Step(
        "subscription",
        "Send notifications",
        "Get a message in chat, mail, PagerDuty or a webhook when a rollout stops.",
        "/notifications",
        "tidegate notify create --help",
    ),
    _Step(
        "second_person",
        "Add a second person",
        "One proposes, another approves.",
        "/settings",
        "tidegate user create --help",
    ),
)


def checklist(steps: FirstSteps) -> tuple[overview_screen.ChecklistStep, ...]:
    """List every step and whether it is done; none once all are."""
    if steps.are_done:
        return ()
    return tuple(
        overview_screen.ChecklistStep(
            title=step.title,
            text=step.text,
            href=step.href,
            command=step.command,
            done=getattr(steps, step.name),
        )
        for step in STEPS
    )
