"""What pages share: the frame around a view, errors as pages, forms that redirect."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Meta, Struct, structs

from tidegate.api.feed.tail import Tail
from tidegate.clock import Clock
from tidegate.control.operations import execute, promotion, protection
from tidegate.control.operations.accounts import Accounts
from tidegate.dashboard import components, html
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import principals, roles, second_person, steps
from tidegate.errors import TidegateError
from tidegate.kernel.model import Position
from tidegate.web import inputs, paging, problems, routing, shapes

HTML: Final = "text/html"
UTF8: Final = "text/html; charset=utf-8"
ROWS = 100  # of a list on one page
FORM_KEY_BYTES = 13
DONE: Final = {
    "requested": "The channel is protected: a request was made, and nothing was changed yet.",
    "request approved": "Your approval was recorded.",
    "request carried out": "It was approved and carried out.",
    "request rejected": "The request was rejected.",
    "request withdrawn": "The request was withdrawn.",
    "reviewed": "Your review was recorded.",
    "created": "It was created.",
    "saved": "It was saved.",
    "deleted": "It was deleted.",
    "join revoked": "The token was revoked: it enrolls no more hosts.",
    "replayed": "The messages are sent again.",
    "frozen": "The freeze has started: no order is sent on its channels.",
    "freeze ended": "The freeze has ended.",
    "protected": "The channel is protected.",
    "unprotected": "The channel is not protected any more.",
    "approved": "Your approval was recorded.",
    "rejected": "The proposal was rejected.",
    "proposed": "Proposed: another person can approve it now.",
    "withdrawn": "The proposal was withdrawn.",
    "promoted": "Promoted: the rollout is open.",
    "promoted and waits": "Promoted: the rollout is open. Read below what its orders wait for.",
    "rolled back and waits": "The channel goes back: the rollout is open. Read below what its "
    "orders wait for.",
    "rolled back": "The channel goes back: the rollout is open.",
    "held": "The channel is held.",
    "held already": "The channel was held already, and your hold was not added. This page names "
    "who holds it.",
    "unheld": "The hold was released.",
    "not held": "The channel was not held, and nothing was released.",
    "lifted": "The quarantine was lifted.",
    "paused": "The rollout was paused.",
    "resumed": "The rollout was resumed.",
    "cleared": "The rollout was cleared.",
    "overridden": "The rollout passes the gate.",
    "skipped": "The rollout continues without the host.",
    "skipped already": "The host was skipped already, and nothing was changed.",
    "continued": "The next wave goes as soon as the one before it is done.",
    "wave-skipped": "The rollout continues without the wave.",
    "all-promoted": "Every wave gets its orders now.",
    "aborted": "The rollout was aborted.",
    "redriven": "The worker will try it again.",
    "cancelled": "The intent was given up.",
    "revoked": "It was revoked.",
    "granted": "The role was granted.",
    "password changed": "Your password was changed. Other sessions and all tokens have ended.",
    "added": "The user was added.",
    "disabled": "The user was disabled.",
    "enabled": "The user was enabled.",
    "retired": "The host is retired.",
}

LOST: Final = {
    400: ("warning", "That cannot be asked"),
    403: ("lock", "Your roles do not cover this"),
    404: ("search", "There is nothing here"),
    405: ("warning", "That cannot be done here"),
    429: ("clock", "Too much at once"),
    500: ("warning", "That is our fault"),
    503: ("clock", "Not at this moment"),
}

Change = TypeVar("Change", promotion.ChannelPromotion, execute.VerbResult)
Text = Annotated[str, Meta(max_length=512)]
Reason = Annotated[str, Meta(min_length=1, max_length=1_024)]
OptionalReason = Annotated[str, Meta(max_length=1_024)]


SortWish = Annotated[str, Meta(max_length=32)]  # a column of a list; with - for descending order


class PageQuery(inputs.Input, frozen=True, kw_only=True):
    """The query of every page: a notice, and the position that the log must reach."""

    done: Annotated[str, Meta(max_length=32)] = ""
    min_position: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0


class ListQuery(PageQuery, frozen=True, kw_only=True):
    next: Annotated[str, Meta(max_length=2_048)] = ""


OPTIONAL_REASON: Final = components.Field(
    name="reason", label="Reason", kind="long", placeholder="Why, for the log (optional)"
)
REASON: Final = components.Field(
    name="reason", label="Reason", kind="long", required=True, placeholder="Why, for the log"
)


@dataclass(frozen=True, kw_only=True)
class PageView:
    """A view, and what its frame needs to know."""

    template: str
    title: str
    here: str  # the current entry of the navigation
    view: Struct | None
    address: str = ""  # of the page itself, if it can answer a form too
    crumbs: tuple[components.Link, ...] = ()
    verbs: tuple[components.VerbButton, ...] = ()
    about: str = ""  # the tag of the events that make it stale; empty: any event
    still: bool = False  # the page does not follow the log
    redraws: bool = True  # whether the page reloads itself when something changed
    forgets: tuple[str, ...] = ()  # members of the query that a reload leaves out
    headers: dict[str, str] = field(default_factory=dict)


Asked = routing.Request[Any, Any, Any]


class Layout:
    """Renders views in the frame that all pages share."""

    def __init__(
        self, clock: Clock, accounts: Accounts, tail: Tail, cursors: paging.Cursors
    ) -> None:
        self._clock = clock
        self._accounts = accounts
        self._tail = tail
        self._cursors = cursors

    def answer(
        self, request: Asked, page: PageView, *, problem: TidegateError | None = None
    ) -> routing.Response:
        """Render the page as HTML; ``problem`` is why a request failed."""
        principal = request.principal
        called = self._accounts.called(principal.id)
        path = request.arrived.path.decode("latin-1")
        is_answer = request.arrived.method == "POST"
        frame = components.Frame(
            title=page.title,
            url=path if is_answer else _address(request, page),
            address=page.address if is_answer else "",
            now=self._clock(),
            head=self._tail.position,
            nav=components.navigation(page.here),
            crumbs=page.crumbs or (components.Link(page.title),),
            user=principal.id if called is None else called.name,
            user_id=principal.id,
            roles=", ".join(describe_grants(principal.grants)),
            csrf=principal.csrf,
            form_key=secrets.token_hex(FORM_KEY_BYTES),
            stream="" if page.still or problem else _stream(page.about),
            redraws=page.redraws,
            verbs=page.verbs if problem is None else _keep_typed(page.verbs, path, request.body),
            problem=None if problem is None else to_form_error(problem),
            done=DONE.get(getattr(request.query, "done", ""), ""),
        )
        body = html.render(page.template, frame, page.view)
        status = 200 if problem is None else problems.status_of(type(problem))
        return routing.Response(body, status=status, media=UTF8, headers=page.headers)

    def attempt(
        self,
        request: Asked,
        do: Callable[[], Position],
        back: str,
        done: str,
        page: Callable[[], PageView],
    ) -> routing.Response:
        """Run the command of a form and redirect to ``back``; show an error on the page."""
        try:
            position = do()
        except TidegateError as error:
            return self.answer(request, page(), problem=error)
        except second_person.SecondPersonNeeded as waits:
            return lead_to_request(waits)
        return see_other(f"{back}?{urlencode({'done': done, 'min_position': position})}")

    def attempt_and_lead(
        self,
        request: Asked,
        do: Callable[[], Change],
        lead: Callable[[Change], tuple[str, str]],
        page: Callable[[], PageView],
    ) -> routing.Response:
        """As ``attempt``, but the result determines the address and the notice."""
        try:
            result = do()
        except TidegateError as error:
            return self.answer(request, page(), problem=error)
        except second_person.SecondPersonNeeded as waits:
            return lead_to_request(waits)
        back, done = lead(result)
        return see_other(f"{back}?{urlencode({'done': done, 'min_position': result.position})}")

    def further(self, request: Asked, last: str | None, **filters: str) -> str:
        """The cursor after ``last``, for a link with these filters.

        A cursor is bound to the filters of its address; a notice that is shown once is not a
        filter.
        """
        query = structs.replace(request.query, done="", **filters)
        asked = replace(request, query=query)
        page: shapes.Listed[None] = self._cursors.list_page(asked, (), last)
        return page.next or ""

    def next_page(self, request: Asked, path: str, last: str | None, **filters: str) -> str:
        """The address of the page after ``last``, with these filters; empty: there is none."""
        cursor = self.further(request, last, **filters)
        return components.address(path, **filters, next=cursor) if cursor else ""

    def names(self, request: Asked) -> UserDirectory:
        """The names of users, as the reader of this page may see them."""
        return UserDirectory(self._accounts, request.principal.id)


def _keep_typed(
    verbs: Sequence[components.VerbButton], path: str, body: object
) -> tuple[components.VerbButton, ...]:
    """The verbs, with what was typed into the form that was refused. A password is typed again."""

    def fill(field: components.Field) -> components.Field:
        value = getattr(body, field.name, None)
        is_typed = field.kind not in ("hidden", "password") and isinstance(value, str | int)
        return structs.replace(field, value=str(value)) if is_typed else field

    def is_sent(verb: components.VerbButton) -> bool:
        hidden = [it for it in verb.fields if it.kind == "hidden"]
        return verb.action == path and all(
            str(getattr(body, it.name, "")) == it.value for it in hidden
        )

    return tuple(
        structs.replace(verb, fields=tuple(map(fill, verb.fields))) if is_sent(verb) else verb
        for verb in verbs
    )


def _address(request: Asked, page: PageView) -> str:
    """The page's own address, without notices that are shown once."""
    pairs = [
        (name, value)
        for name in type(request.query).__struct_fields__
        if name not in ("done", "min_position", *page.forgets)
        and (value := getattr(request.query, name)) not in ("", None, 0, False)
    ]
    path = request.arrived.path.decode("latin-1")
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _stream(about: str) -> str:
    return f"/live?about={quote(about, safe='')}" if about else "/live"


def lead_to_request(waits: second_person.SecondPersonNeeded) -> routing.Response:
    """Redirect to the request that was made instead of the change."""
    notice = urlencode({"done": "requested", "min_position": waits.position})
    assert isinstance(waits.request, protection.RequestShown)
    return see_other(f"/approvals/{waits.request.request_id}?{notice}")


def see_other(location: str, *cookies: str) -> routing.Response:
    return routing.Response(None, status=303, headers={"location": location}, cookies=cookies)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def to_form_error(error: TidegateError) -> components.FormError:
    notes: tuple[str, ...] = ()
    detail = html.sentence(error.detail)
    if isinstance(error, problems.InvalidRequest):
        detail = ""
        notes = tuple(f"{fault.field}: {fault.detail}" for fault in error.faults)
    return components.FormError(problems.title_of(type(error)), detail, error.code, notes)


def sign_in_fields() -> tuple[components.Field, ...]:
    return (
        components.Field(name="login", label="Sign-in name", required=True, completes="username"),
        components.Field(
            name="password",
            label="Password",
            kind="password",
            required=True,
            completes="current-password",
        ),
    )


def error_page(error: TidegateError, address: bytes) -> routing.Response:
    """Render an error as a page with the same status."""
    status = problems.status_of(type(error))
    headers = {name.decode(): value.decode() for name, value in problems.headers_of(error)}
    headers.pop("www-authenticate", None)  # the sign-in form asks for it, not the browser
    view: Struct
    if isinstance(error, problems.Unauthenticated):
        template, title = "sign_in.html", "Sign in"
        fields = (
            *sign_in_fields(),
            components.Field(name="next", kind="hidden", value=address.decode("latin-1")),
        )
        view = form_screens.SignInPage(action="/signin", fields=fields, label="Sign in")
    else:
        icon, title = LOST.get(status, ("warning", "That did not work"))
        template, fault = "error.html", to_form_error(error)
        is_lost = isinstance(error, problems.NoSuchPath)
        detail = "No page has this address." if is_lost else fault.detail
        parts = (detail, *fault.notes)
        request = error.facts.get("request")
        view = form_screens.ErrorPage(
            title=title,
            text=". ".join(part for part in parts if part),
            icon=icon,
            code=fault.code,
            request=str(request) if status >= 500 and request else "",
            links=(
                components.Option("/", "Overview", "overview"),
                components.Option("/rollouts", "Rollouts", "rollouts"),
            ),
        )
    now = datetime.now(UTC)
    frame = components.Frame(
        title=title,
        url="",
        now=now,
        head=0,
        nav=components.navigation(""),
        crumbs=(components.Link(title),),
    )
    return routing.Response(
        html.render(template, frame, view), status=status, media=UTF8, headers=headers
    )


def form_error_page(error: TidegateError, address: bytes) -> routing.Response:
    """Render the error of a form: after signing in again, the user starts at the overview."""
    return error_page(error, b"/")


# ── routes ────────────────────────────────────────────────────────────────────────────────────────


def page_route(
    path: str, handler: Callable[..., Any], permission: routing.Permission
) -> routing.Route:
    """A route that shows a page."""
    return routing.Route("GET", path, handler, permission, produces=HTML, fails=error_page)


def action_route(
    path: str, handler: Callable[..., Any], permission: routing.Permission, *, urgent: bool = False
) -> routing.Route:
    """A route for a form of a page."""
    return routing.Route(
        "POST",
        path,
        handler,
        permission,
        status=303,
        consumes=routing.Consumes.FORM,
        produces=HTML,
        fails=form_error_page,
        urgent=urgent,
    )


def step_route(
    path: str,
    handler: Callable[..., Any],
    step: steps.Step,
    scope: routing.ScopeOf | str | None = roles.EVERYWHERE,
) -> routing.Route:
    """A route for a form that takes one step, with the step's permission and limits. With ``scope``
    None, only the operation knows the scope.
    """
    return routing.Route(
        "POST",
        path,
        handler,
        routing.requires_step(step, scope),
        status=303,
        guard=step.version,
        consumes=routing.Consumes.FORM,
        produces=HTML,
        fails=form_error_page,
        urgent=step.urgent,
    )


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


def why_nowhere(principal: principals.Principal, step: steps.Step) -> str:
    """Why the principal may take a step on no scope at all; empty: they may on some."""
    if any(principal.may(verb, None) for verb in step.verbs):
        return ""
    return principals.describe_missing(principal, step.verbs, None)


def describe_grants(grants: tuple[roles.Grant, ...]) -> Iterator[str]:
    for grant in grants:
        yield (
            str(grant.role) if grant.scope == roles.EVERYWHERE else f"{grant.role} on {grant.scope}"
        )


class UserDirectory:
    """The names of users by id, each read once. An erased user is shown by id."""

    def __init__(self, accounts: Accounts, reader: str) -> None:
        self._accounts = accounts
        self._names = {"": "", reader: "you"}

    def __call__(self, user_id: str) -> str:
        name = self._names.get(user_id)
        if name is None:
            called = self._accounts.called(user_id) if user_id.startswith("user_") else None
            name = self._names[user_id] = user_id if called is None else called.name
        return name
