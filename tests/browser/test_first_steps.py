"""The checklist of a new installation: steps tick themselves, and the list goes at the end."""

from __future__ import annotations

import re
from html import unescape

from tests.browser.actions import cookies
from tests.browser.dashboard_fleet import PEOPLE, DashboardFleet
from tests.browser.samples import SCREENS
from tidegate.control.queries.first_steps import FirstSteps, read_first_steps
from tidegate.dashboard.checklist import STEPS, checklist

_LINE = re.compile(r'<li class="(done )?t-[a-z]+">.*?<a class="link strong" [^>]+>([^<]+)</a>')


def lines(fleet: DashboardFleet) -> dict[str, bool]:
    """The steps on the overview, and which are done."""
    text = cookies(fleet, "viewer").get("/").text
    listed = text.partition('<ol class="steps">')[2].partition("</ol>")[0]
    return {unescape(title): bool(done) for done, title in _LINE.findall(listed)}


def undone(fleet: DashboardFleet) -> list[str]:
    return [title for title, done in lines(fleet).items() if not done]


def test_ticks_each_finished_step_and_disappears_after_the_last(fleet: DashboardFleet) -> None:
    there = ("repository", "second_person")  # with the people of the test
    assert undone(fleet) == [step.title for step in STEPS if step.name not in there]

    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("stable")
    assert undone(fleet) == ["Enroll a host", "Promote the revision", "Send notifications"]
    fleet.enroll("stable", "web-00")
    fleet.promote("stable", "web.1")
    # From now on the overview shows what happens first, and of the steps only what is missing.
    assert lines(fleet) == {"Send notifications": False}
    text = cookies(fleet, "viewer").get("/").text
    assert text.index("What runs where") < text.index("First steps")
    assert "6 of 7 done" in text
    token = fleet.served.token(PEOPLE["approver"][0])
    hook = {"name": "ops", "kind": "slack", "url": "https://hooks.example.com/x"}
    answer = fleet.served.client(token).post("/v1/subscriptions", json=hook)
    assert answer.status_code == 201, answer.text

    assert lines(fleet) == {}
    assert read_first_steps(fleet.installation.reads).are_done


def test_names_a_command_and_a_page_for_every_step() -> None:
    nothing = FirstSteps(**dict.fromkeys(FirstSteps.__struct_fields__, False))

    steps = checklist(nothing)

    assert [step.name for step in STEPS] == [*FirstSteps.__struct_fields__]
    assert all(step.command.startswith("tidegate ") for step in steps)
    assert all(step.href.startswith("/") for step in steps)
    assert SCREENS["overview-empty"][2].checklist  # type: ignore[attr-defined]
