"""Run one verb through API, command line and dashboard, and compare error code and facts.

    case ──▶ API  ──┐
         ──▶ CLI  ──┼──▶ Result(code, facts), equal for all doors
         ──▶ page ──┘

Each door gets a server of its own with the same data and the same clock.
"""

from __future__ import annotations

import gc
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx2

from tests.api.accounts import signed_in
from tests.api.served_fleet import ServedFleet, serve_fleet
from tests.api.serving import Served
from tests.cli.all_commands import COMMANDS as CLI_COMMANDS
from tidegate.__main__ import COMMANDS
from tidegate.api.routes import ROUTES
from tidegate.cli.exit_codes import ExitCode
from tidegate.cli.root import run
from tidegate.control.operations.accounts import PersonNames
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.steps import Step
from tidegate.kernel.model import Event, Meta, Position
from tidegate.web.decoding import segments_of
from tidegate.web.routing import Route, Router

EVENTS_MAX = 1_000
_CLI_CODE = re.compile(r"\[([a-z_]+)\]$", re.MULTILINE)  # a hint may have brackets, too
_PAGE_CODE = re.compile(r"<code>([a-z_]+)</code>")
# Parts that differ each time: generated ids, and keys that contain one.
_MADE_UP = re.compile(
    r'"(command_id|intent_id|idempotency_key|request|uid|freeze_id|request_id|join_id)":"[^"]*"'
)
_MADE_UP_USER = re.compile(r"user_[0-9a-f]{20}")
_MADE_UP_SECRET = re.compile(r'"(token_id|credential_id|address_id)":"[0-9a-f]{26}"')
# Replaced by the caller's id, in a path, in the words of a command, or in a form.
CALLER = "CALLER"
_ROUTER = Router(ROUTES)
LOGIN = "caller.of.verbs"
PASSWORD = "correct horse battery"


class Door(StrEnum):
    """A way to run a verb."""

    API = "api"
    CLI = "cli"
    PAGE = "page"


class Result(NamedTuple):
    """The result of a verb."""

    code: str  # of the error; empty: it succeeded
    facts: tuple[str, ...]


class ApiCall(NamedTuple):
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    etag_of: str = ""  # read this first, and send its ETag as If-Match


class Form(NamedTuple):
    path: str
    fields: Mapping[str, str] = {}
    page: str = ""  # the page of the form, whose hidden fields are sent as well


class Verb(NamedTuple):
    """A verb and its doors. A missing door has a text that says why."""

    step: Step
    api: ApiCall
    cli: tuple[str, ...] | str
    form: Form | str
    typed: str = ""  # on the standard input of the command

    @property
    def doors(self) -> tuple[Door, ...]:
        doors = [Door.API]
        if not isinstance(self.cli, str):
            doors.append(Door.CLI)
        if not isinstance(self.form, str):
            doors.append(Door.PAGE)
        return tuple(doors)


def leave_as_served(fleet: ServedFleet) -> None:
    """Leave the fleet as it is."""


def prepare_nothing(fleet: ServedFleet, caller: httpx2.Client) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class VerbCase:
    """A verb in a situation, and the expected result."""

    verb: Verb
    title: str
    roles: tuple[Role | Grant, ...]
    arrange: Callable[[ServedFleet], None] = leave_as_served
    code: str = ""  # the expected error
    changes: bool = True  # False: it was done before, and no fact is recorded
    prepare: Callable[[ServedFleet, httpx2.Client], None] = prepare_nothing
    narrowed: tuple[Grant, ...] | None = None  # the roles of the caller's token
    has_password: bool = False  # sign in with LOGIN and PASSWORD instead of a token
    beside: frozenset[str] = frozenset()  # types of facts that are not compared

    def __str__(self) -> str:
        return f"{self.verb.step.name}: {self.title}"


@contextmanager
def serve(data: Path) -> Iterator[ServedFleet]:
    """A server with API and pages, two releases and two hosts."""
    with serve_fleet(data, (*ROUTES, *PAGES)) as fleet:
        yield fleet


class SharedServers:
    """Servers for verbs that are refused: these change nothing, so one server serves many of them.

    Verbs share a server if the same function arranges it, and if nothing is prepared as a caller.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._fleets: dict[tuple[object, Door], ServedFleet] = {}

    def open(self, case: VerbCase, door: Door) -> ServedFleet:
        fleet = self._fleets.get((case.arrange, door))
        if fleet is None:
            place = self._directory / str(len(self._fleets)) / "data"
            fleet = self._stack.enter_context(serve(place))
            case.arrange(fleet)
            self._fleets[case.arrange, door] = fleet
        return fleet

    def close(self) -> None:
        self._stack.close()


def take(case: VerbCase, door: Door, fleet: ServedFleet, *, is_rehearsed: bool = True) -> Result:
    """Run the verb through a door of an arranged fleet, after a dry run of it."""
    grants = tuple(item if isinstance(item, Grant) else Grant(item) for item in case.roles)
    user = fleet.served.user(*grants)
    token = fleet.served.token(user, case.narrowed)
    client = fleet.served.client(token)
    if case.has_password:
        called = PersonNames(LOGIN, "The caller")
        fleet.installation.accounts.keep_person(user, called, PASSWORD, Meta(actor=user))
        client = signed_in(fleet.served, LOGIN, PASSWORD)
    case.prepare(fleet, client)
    before = fleet.installation.log.head()
    would = None
    if is_rehearsed:
        would = rehearse(case, door, fleet, client, token, user)
        assert fleet.installation.log.head() == before, "a dry run changes nothing"
    code = send(case.verb, door, fleet.served, client, token, user)
    recorded = fleet.installation.log.feed(after=before, limit=EVENTS_MAX)
    if would is not None:
        # A promotion also publishes the manifest of its channel, in a commit of its own.
        types = tuple(event.type for event in recorded)[: len(would.types) or None]
        assert would == Rehearsal(code, types), case
    return Result(code, facts_after(fleet.served, before, user, case.beside))


class Rehearsal(NamedTuple):
    """The result of a dry run."""

    code: str
    types: tuple[str, ...]  # of the facts that the verb would record


def rehearse(
    case: VerbCase,
    door: Door,
    fleet: ServedFleet,
    client: httpx2.Client,
    token: str | None,
    user: str,
) -> Rehearsal | None:
    """The result of the verb's dry run through the API; None through other doors.

    Through the command line the dry run is executed too, so that the caller can compare the log.
    """
    call = case.verb.api._replace(path=case.verb.api.path.replace(CALLER, user))
    if door is Door.CLI and has_dry_run(case.verb):
        words = tuple(word.replace(CALLER, user) for word in case.verb.cli)
        assert _by_cli(fleet.served.url, token, (*words, "--dry-run"), case.verb.typed) == case.code
    if door is not Door.API or not route_of(call).dry_run:
        return None
    headers = {"tidegate-dry-run": "true"}
    if call.etag_of:
        headers["if-match"] = client.get(call.etag_of).headers["etag"]
    said = client.request(call.method, call.path, json=call.body, headers=headers)
    if not said.is_success:
        return Rehearsal(str(said.json()["code"]), ())
    return Rehearsal("", tuple(fact["type"] for fact in said.json()["facts"]))


def route_of(call: ApiCall) -> Route:
    found = _ROUTER.find(segments_of(call.path.partition("?")[0].encode()))
    assert found is not None, call.path
    return found[0][call.method]


def has_dry_run(verb: Verb) -> bool:
    """Whether its command takes ``--dry-run``."""
    if isinstance(verb.cli, str) or verb.cli[:2] == ("channel", "rollback"):
        return False  # it shows the whole ladder instead
    command = CLI_COMMANDS.get(" ".join(verb.cli[:2]))
    return command is not None and any(item.name == "dry_run" for item in command.params)


def send(
    verb: Verb,
    door: Door,
    served: Served,
    client: httpx2.Client,
    token: str | None,
    user: str = CALLER,
) -> str:
    """Send the verb through a door; return the code of the error, or nothing."""
    match door:
        case Door.API:
            return _by_api(client, verb.api._replace(path=verb.api.path.replace(CALLER, user)))
        case Door.CLI:
            assert not isinstance(verb.cli, str)
            words = tuple(word.replace(CALLER, user) for word in verb.cli)
            return _by_cli(served.url, token, words, verb.typed)
        case Door.PAGE:
            assert not isinstance(verb.form, str)
            fields = {name: text.replace(CALLER, user) for name, text in verb.form.fields.items()}
            return _by_form(client, verb.form._replace(fields=fields))


def facts_after(
    served: Served, before: Position, user: str, beside: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """The facts recorded after a position, without the parts that differ each time."""
    recorded = served.installation.log.feed(after=before, limit=EVENTS_MAX)
    return tuple(_plain(event, user) for event in recorded if event.type not in beside)


def _plain(event: Event, user: str) -> str:
    """An event without the parts that differ each time."""
    text = _MADE_UP.sub(r'"\1":"…"', event.body.decode()).replace(user, CALLER)
    text = _MADE_UP_SECRET.sub(r'"\1":"…"', _MADE_UP_USER.sub("user_…", text))
    return f"{event.type} {text}"


def _by_api(client: httpx2.Client, call: ApiCall) -> str:
    headers = {}
    if call.etag_of:
        headers["if-match"] = client.get(call.etag_of).headers["etag"]
    done = client.request(call.method, call.path, json=call.body, headers=headers)
    return "" if done.is_success else str(done.json()["code"])


def _by_cli(url: str, token: str | None, words: tuple[str, ...], typed: str = "") -> str:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    environ = {"TIDEGATE_URL": url, "NO_COLOR": "1"}
    if token is not None:
        environ["TIDEGATE_TOKEN"] = token
    with (
        TemporaryDirectory() as home,
        patch.dict(os.environ, {**environ, "XDG_CONFIG_HOME": home}),
        patch.object(sys, "stdin", io.StringIO(typed)),
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(action="ignore", category=ResourceWarning),
    ):
        code = run(COMMANDS, words)
        gc.collect()  # a command leaves its connection to the end of its process
    err.flush()
    said = err.buffer.getvalue().decode()
    if code in (ExitCode.DONE, ExitCode.WAITING):
        return ""
    found = _CLI_CODE.search(said)
    assert found, said
    return found[1]


def _by_form(client: httpx2.Client, form: Form) -> str:
    fields = dict(form.fields)
    if form.page:
        shown = client.get(form.page, headers={"accept": "text/html"}).text
        fields = hidden_fields(shown, form.path) | fields
    done = client.post(form.path, data=fields, headers={"accept": "text/html"})
    if done.status_code < 400:  # a redirect, or a page that shows a secret once
        return ""
    found = _PAGE_CODE.search(done.text)
    assert found, done.text
    return found[1]


def hidden_fields(page: str, action: str) -> dict[str, str]:
    """The hidden fields of a form on a page; none if the page does not have the form."""
    start = page.find(f'action="{action}"')
    if start < 0:
        return {}
    text = page[start : page.index("</form>", start)]
    return dict(re.findall(r'type="hidden" name="([a-z_]+)" value="([^"]*)"', text))


def check(case: VerbCase, directory: Path, shared: SharedServers) -> None:
    """Check that each door of a verb gives the same error and records the same facts."""
    results = {}
    for door in case.verb.doors:
        if case.code and case.prepare is prepare_nothing and not case.has_password:
            results[door] = take(case, door, shared.open(case, door))
            continue
        with serve(directory / door / "data") as fleet:
            case.arrange(fleet)
            results[door] = take(case, door, fleet)
            assert fleet.installation.health.differences() == []
    api = results[Door.API]
    assert api.code == case.code
    assert bool(api.facts) is (case.changes and not case.code), api.facts
    assert {door: result for door, result in results.items() if result != api} == {}
