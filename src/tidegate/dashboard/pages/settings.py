"""Settings: users and their roles, one's own API tokens, repositories, what this server is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from tidegate import __version__
from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.operations.access import (
    AccessOperations,
    AddedUser,
    ChangedUser,
    reset_path,
)
from tidegate.control.operations.accounts import (
    PASSWORD_CHARS_MAX,
    PASSWORD_CHARS_MIN,
    Accounts,
    PersonNames,
)
from tidegate.control.operations.freezes import list_scopes
from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.operations.subscriptions import SubscriptionOperations
from tidegate.control.queries.reads import Reads
from tidegate.dashboard.components import Chip, Field, Option, VerbButton
from tidegate.dashboard.layout import (
    REASON,
    Layout,
    PageQuery,
    PageView,
    Reason,
    describe_grants,
    page_route,
    see_other,
    step_route,
)
from tidegate.dashboard.view_models import (
    RepositoryLine,
    SettingsPage,
    SubscriptionLine,
    TokenLine,
    UserLine,
)
from tidegate.dashboard.window_lines import list_lines
from tidegate.domain.access import steps
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE, Grant, Role
from tidegate.domain.access.roles import Verb as Right
from tidegate.domain.access.rows import API_TOKENS, USERS, ApiToken, User, user_key
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.slices import REASON_BYTES_MAX, TOKEN_DAYS_MAX
from tidegate.domain.epochs import LOG_IDS, LogId
from tidegate.domain.notifications.rows import NoticeQueue, Subscription
from tidegate.domain.packages.rows import REPOSITORIES
from tidegate.domain.windows.rows import Window
from tidegate.errors import TidegateError
from tidegate.kernel.model import Key
from tidegate.web.authentication import set_cookie
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import SIGNED_IN, Request, Response

USERS_MAX = 200
TOKENS_MAX = 100
ENABLED = Chip("check", "good", "Enabled")
DISABLED = Chip("ban", "warn", "Disabled")
ERASED = Chip("trash", "gone", "Erased")
VALID = Chip("check", "good", "Valid")
EXPIRED = Chip("clock", "gone", "Expired")
REVOKED = Chip("ban", "gone", "Revoked")
WORKING = Chip("check", "good", "Works")
FAILING = Chip("warning", "bad", "Failing")
ENDED = Chip("ban", "gone", "Ended")  # with its parent, or by a change of password

UserId = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9_]+$")]


class NewTokenForm(Input, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=TOKEN_DAYS_MAX)] = 30


class NewUserForm(Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    password: Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)] = ""  # empty: they choose it
    role: Role = Role.VIEWER


class OwnPasswordForm(Input, frozen=True, kw_only=True):
    current: Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)]
    password: Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)]


class GrantForm(Input, frozen=True, kw_only=True):
    user_id: UserId
    role: Role
    scope: Annotated[str, Meta(max_length=80)] = EVERYWHERE
    take: bool = False


class DisableForm(Input, frozen=True, kw_only=True):
    user_id: UserId
    reason: Annotated[str, Meta(max_length=REASON_BYTES_MAX // 4)] = ""


class EnableForm(Input, frozen=True, kw_only=True):
    user_id: UserId


class ResetPasswordForm(Input, frozen=True, kw_only=True):
    user_id: UserId


class TokenForm(Input, frozen=True, kw_only=True):
    token_id: Annotated[str, Meta(min_length=1, max_length=64)]


class RepositoryForm(Input, frozen=True, kw_only=True):
    repository: Annotated[str, Meta(min_length=1, max_length=63)]
    reason: Reason


Asked = Request[Nothing, PageQuery, Nothing]


def show(
    request: Asked,
    pages: SettingsPages,
    layout: Layout,
) -> Response:
    """Who may do what here."""
    return layout.answer(
        request,
        pages.page_of(
            request,
        ),
    )


@dataclass(frozen=True)
class SettingsPages:
    """The settings page."""

    reads: Reads
    clock: Clock
    settings: Settings
    accounts: Accounts
    subscriptions: SubscriptionOperations

    def page_of(
        self,
        request: Request[Any, Any, Any],
        secret: str = "",
        link: str = "",
    ) -> PageView:
        users = (
            _users(request, self.reads, self.accounts) if request.principal.may(Right.AUDIT) else ()
        )
        tokens = _tokens(request, self.reads, self.clock, self.accounts)
        repositories = _repositories(request, self.reads)
        verbs = _verbs(request)
        view = SettingsPage(
            me=request.principal.id,
            users=users,
            tokens=tokens,
            repositories=repositories,
            verbs=verbs,
            secret=secret,
            link=link,
            facts=_facts(self.reads, self.settings),
            windows=list_lines(self.reads, self.clock(), partial(_may_see_window, request)),
            subscriptions=_subscriptions(request, self.subscriptions),
        )
        rows = [
            *(verb for line in users for verb in line.verbs),
            *(verb for line in tokens for verb in line.verbs),
            *(line.delete for line in repositories),
        ]
        return PageView(
            template="settings.html",
            title="Settings",
            here="/settings",
            view=view,
            verbs=(*verbs, *rows),
            still=bool(secret or link),
        )


def _log_id(reads: Reads) -> str:
    found = reads.find(Key(LOG_IDS.name, "log"), LogId)
    return "none yet" if found is None else found.row.log_id


def _facts(reads: Reads, settings: Settings) -> tuple[Option, ...]:
    kind = settings.store_url.partition(":")[0]
    return (
        Option(__version__, "Version"),
        Option(kind, "Log"),
        Option(_log_id(reads), "Log id"),
        Option("yes" if settings.is_secure else "loopback only", "TLS"),
    )


def _subscriptions(
    request: Request[Any, Any, Any], subscriptions: SubscriptionOperations
) -> tuple[SubscriptionLine, ...]:
    lines = []
    for found in subscriptions.list_readable(request.caller):
        row, queue = found.row, subscriptions.queue(found.id)
        events = ", ".join(row.events) or f"all events from {row.min_severity} on"
        waits = f" · {queue.waiting:,} wait" if queue.waiting else ""
        dead = f" · {queue.dead:,} given up" if queue.dead else ""
        error = f" · {row.disabled_reason or queue.last_error}"
        lines.append(
            SubscriptionLine(
                name=row.name,
                kind=str(row.kind),
                chip=_subscription_chip(row, queue),
                text=f"{events} · {', '.join(row.scopes)}{waits}{dead}{error.rstrip(' ·')}",
            )
        )
    return tuple(lines)


def _subscription_chip(row: Subscription, queue: NoticeQueue) -> Chip:
    if row.disabled_at is not None:
        return DISABLED
    return FAILING if queue.failures else WORKING


def _may_see_window(request: Request[Any, Any, Any], row: Window) -> bool:
    """One of all channels concerns everybody."""
    scopes = list_scopes(row.channels)
    return not row.channels or any(request.principal.may(Right.READ, it) for it in scopes)


def _repositories(
    request: Request[Any, Any, Any],
    reads: Reads,
) -> tuple[RepositoryLine, ...]:
    rows = [item.row for item in reads.range(REPOSITORIES, limit=USERS_MAX)]
    return tuple(
        RepositoryLine(
            name=row.name,
            text="one's own approval is enough"
            if row.quorum == 0
            else f"{row.quorum} approval{'' if row.quorum == 1 else 's'} by somebody else",
            delete=_delete_repository(request.caller, row.name, number),
        )
        for number, row in enumerate(rows)
        if request.principal.may(Right.READ, repository_scope(row.name))
    )


def _delete_repository(caller: Caller, name: str, number: int) -> VerbButton:
    return VerbButton(
        id=f"delete-repository-{number}",
        label="Delete",
        icon="trash",
        action="/settings/delete-repository",
        title=f"Delete the repository {name}?",
        text="It must have no packages, and no channel may carry one of it. The log keeps its "
        "history.",
        fields=(Field(name="repository", kind="hidden", value=name), REASON),
        why=caller.why_not(steps.DELETE_REPOSITORY, repository_scope(name)),
        danger=True,
    )


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def _users(
    request: Request[Any, Any, Any],
    reads: Reads,
    accounts: Accounts,
) -> tuple[UserLine, ...]:
    rows = [item.row for item in reads.range(USERS, limit=USERS_MAX)]
    administers = request.principal.may(Right.ADMINISTER)
    lines: list[UserLine] = []
    for number, row in enumerate(rows):
        called = accounts.called(row.user_id)
        name = "(erased)" if called is None and row.erased else row.user_id
        lines.append(
            UserLine(
                user_id=row.user_id,
                name=name if called is None else called.name,
                chip=ERASED if row.erased else ENABLED if row.enabled else DISABLED,
                grants=tuple(describe_grants(row.grants)),
                tokens=row.tokens,
                added_at=row.added_at,
                verbs=_user_verbs(request, row, number) if administers else (),
            )
        )
    return tuple(lines)


def _user_verbs(
    request: Request[Any, Any, Any],
    row: User,
    number: int,
) -> tuple[VerbButton, ...]:
    own = "Nobody changes their own access." if row.user_id == request.principal.id else ""
    gone = "The user is erased." if row.erased else ""
    who = Field(name="user_id", kind="hidden", value=row.user_id)
    roles = tuple(Option(str(role), str(role)) for role in Role)
    return (
        VerbButton(
            id=f"grant-{number}",
            label="Roles",
            icon="shield",
            action="/settings/grant",
            title="Grant or take a role",
            fields=(
                who,
                Field(name="role", label="Role", kind="select", options=roles),
                Field(
                    name="scope",
                    label="Where",
                    value=EVERYWHERE,
                    hint="* everywhere, repository:<name> or channel:<name>",
                ),
                Field(
                    name="take",
                    label="What",
                    kind="choice",
                    value="false",
                    options=(
                        Option("false", "Grant", "They may from now on."),
                        Option("true", "Take", "They may no longer."),
                    ),
                ),
            ),
            why=own or gone,
        ),
        VerbButton(
            id=f"disable-{number}",
            label="Disable" if row.enabled else "Enable",
            icon="ban" if row.enabled else "check",
            action="/settings/disable" if row.enabled else "/settings/enable",
            title="Shut out?" if row.enabled else "Let in again?",
            text="All sessions and tokens stop counting at once." if row.enabled else "",
            fields=(who, Field(name="reason", label="Reason", kind="long"))
            if row.enabled
            else (who,),
            danger=row.enabled,
            why=own or gone,
        ),
        VerbButton(
            id=f"reset-{number}",
            label="Reset password",
            icon="key",
            action="/settings/reset-password",
            title="Reset the password?",
            text="Their password, sessions and tokens end at once. You get a link to give to them,"
            " with which they choose a new password. They approve nothing for a day.",
            fields=(who,),
            danger=True,
            why=own or gone,
        ),
    )


def _verbs(request: Request) -> tuple[VerbButton, ...]:  # type: ignore[type-arg]
    administers = request.principal.may(Right.ADMINISTER)
    roles = tuple(Option(str(role), str(role)) for role in Role)
    return (
        VerbButton(
            id="token",
            label="New token",
            icon="key",
            action="/settings/tokens",
            title="New API token",
            text="It acts in your name, may what you may, and is shown once.",
            fields=(
                Field(
                    name="days",
                    label="Days until it expires",
                    kind="number",
                    value="30",
                    hint=f"At most {TOKEN_DAYS_MAX}.",
                ),
            ),
            first=True,
        ),
        VerbButton(
            id="password",
            label="Change password",
            icon="shield",
            action="/settings/password",
            title="Change your password",
            text="Your other sessions and all your API tokens end.",
            fields=(
                Field(
                    name="current",
                    label="Current password",
                    kind="password",
                    required=True,
                    completes="current-password",
                ),
                Field(
                    name="password",
                    label="New password",
                    kind="password",
                    required=True,
                    completes="new-password",
                    hint=f"At least {PASSWORD_CHARS_MIN} characters.",
                ),
            ),
        ),
        VerbButton(
            id="user",
            label="Add user",
            icon="user",
            action="/settings/users",
            title="Add a user",
            fields=(
                Field(name="login", label="Sign-in name", required=True),
                Field(name="name", label="Name", required=True),
                Field(
                    name="password",
                    label="First password",
                    kind="password",
                    completes="new-password",
                    hint="Leave it empty for a person: you get a link with which they choose it.",
                ),
                Field(name="role", label="First role", kind="select", options=roles),
            ),
            why="" if administers else "This needs the role security-admin.",
        ),
    )


def add(
    request: Request[Nothing, PageQuery, NewUserForm],
    access: AccessOperations,
    pages: SettingsPages,
    settings: Settings,
    layout: Layout,
) -> Response:
    """Add a user with a role. The page that answers shows a link for them, and no page after."""
    body = request.body
    called, grants = PersonNames(body.login, body.name), (Grant(body.role),)
    run = partial(access.add_user, request.caller, called, body.password or None, grants)
    if body.password:
        return _change(request, pages, layout, run, "added")
    try:
        reset = run().reset
    except TidegateError as error:
        return layout.answer(request, pages.page_of(request), problem=error)
    link = "" if reset is None else settings.public_url + reset_path(reset)
    return layout.answer(request, pages.page_of(request, link=link))


def grant(
    request: Request[Nothing, PageQuery, GrantForm],
    access: AccessOperations,
    pages: SettingsPages,
    layout: Layout,
) -> Response:
    """Give somebody else a role on a scope, or take it."""
    body = request.body
    given = Grant(body.role, body.scope)
    run = partial(access.revoke if body.take else access.grant, request.caller, body.user_id, given)
    return _change(
        request,
        pages,
        layout,
        run,
        "revoked" if body.take else "granted",
    )


def disable(
    request: Request[Nothing, PageQuery, DisableForm],
    access: AccessOperations,
    pages: SettingsPages,
    layout: Layout,
) -> Response:
    """Shut somebody out, with all their sessions and tokens."""
    user_id, reason = request.body.user_id, request.body.reason
    run = partial(access.disable, request.caller, user_id, reason)
    return _change(request, pages, layout, run, "disabled")


def enable(
    request: Request[Nothing, PageQuery, EnableForm],
    access: AccessOperations,
    pages: SettingsPages,
    layout: Layout,
) -> Response:
    """Enable a disabled user again."""
    run = partial(access.enable, request.caller, request.body.user_id)
    return _change(request, pages, layout, run, "enabled")


def reset_password(
    request: Request[Nothing, PageQuery, ResetPasswordForm],
    pages: SettingsPages,
    access: AccessOperations,
    settings: Settings,
    layout: Layout,
) -> Response:
    """End somebody's password. The page that answers shows a link for them, and no page after."""
    try:
        made = access.reset_password(request.caller, request.body.user_id)
    except TidegateError as error:
        return layout.answer(request, pages.page_of(request), problem=error)
    return layout.answer(
        request, pages.page_of(request, link=settings.public_url + reset_path(made))
    )


def _change(
    request: Request[Nothing, PageQuery, Any],
    pages: SettingsPages,
    layout: Layout,
    run: Callable[[], ChangedUser | AddedUser],
    done: str,
) -> Response:
    """Change a user, and lead back to the page."""
    page = partial(
        pages.page_of,
        request,
    )
    return layout.attempt(request, lambda: run().position, "/settings", done, page)


def change_password(
    request: Request[Nothing, PageQuery, OwnPasswordForm],
    pages: SettingsPages,
    access: AccessOperations,
    settings: Settings,
    layout: Layout,
) -> Response:
    """Change your own password. Every session ends but the new one that this opens."""
    body = request.body
    try:
        changed = access.set_password(request.caller, request.by, body.password, body.current)
    except TidegateError as error:
        return layout.answer(
            request,
            pages.page_of(
                request,
            ),
            problem=error,
        )
    done = urlencode({"done": "password changed", "min_position": changed.position})
    cookie = set_cookie(changed.session.cookie, settings)
    return see_other(f"/settings?{done}", cookie)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


def _tokens(
    request: Request[Any, Any, Any],
    reads: Reads,
    clock: Clock,
    accounts: Accounts,
) -> tuple[TokenLine, ...]:
    now = clock()
    owner = reads.find(user_key(request.principal.id), User)
    assert owner is not None, "who is signed in has a row"
    is_good = accounts.is_token_valid
    rows = reads.range(API_TOKENS, index="by_user", of=(request.principal.id,), limit=TOKENS_MAX)
    lines: list[TokenLine] = []
    for number, item in enumerate(rows):
        row: ApiToken = item.row
        chip = REVOKED if row.revoked_at else EXPIRED if row.expires_at <= now else ENDED
        chip = VALID if is_good(row, owner.row) else chip
        may_what = (
            "whatever you may" if row.grants is None else ", ".join(describe_grants(row.grants))
        )
        revoke = VerbButton(
            id=f"revoke-{number}",
            label="Revoke",
            icon="ban",
            action="/settings/revoke",
            title="Revoke the token?",
            text="Whoever uses it is refused from the next request on.",
            fields=(Field(name="token_id", kind="hidden", value=row.token_id),),
            danger=True,
        )
        lines.append(
            TokenLine(
                token_id=row.token_id,
                owner=row.user_id,
                chip=chip,
                created_at=row.created_at,
                expires_at=row.expires_at,
                grants=may_what,
                verbs=(revoke,) if chip is VALID else (),
            )
        )
    return tuple(lines)


def create(
    request: Request[Nothing, PageQuery, NewTokenForm],
    pages: SettingsPages,
    access: AccessOperations,
    layout: Layout,
) -> Response:
    """Make a token of one's own. The page that answers shows it, and no page after it."""
    try:
        made = access.create_token(request.caller, request.body.days)
    except TidegateError as error:
        return layout.answer(
            request,
            pages.page_of(
                request,
            ),
            problem=error,
        )
    return layout.answer(request, pages.page_of(request, made.token))


def revoke(
    request: Request[Nothing, PageQuery, TokenForm],
    pages: SettingsPages,
    access: AccessOperations,
    layout: Layout,
) -> Response:
    """Revoke a token: one's own, or, administering, anybody's."""
    run = partial(access.revoke_token, request.caller, request.body.token_id)
    page = partial(
        pages.page_of,
        request,
    )
    return layout.attempt(request, run, "/settings", "revoked", page)


def delete_repository(
    request: Request[Nothing, PageQuery, RepositoryForm],
    repositories: RepositoryOperations,
    pages: SettingsPages,
    layout: Layout,
) -> Response:
    """Remove a repository that nothing uses."""
    run = partial(repositories.delete, request.caller, request.body.repository, request.body.reason)
    return layout.attempt(request, run, "/settings", "deleted", partial(pages.page_of, request))


def _repository_scope(request: Request[Nothing, PageQuery, RepositoryForm]) -> str:
    return repository_scope(request.body.repository)


ROUTES = (
    page_route("/settings", show, SIGNED_IN),
    step_route(
        "/settings/delete-repository",
        delete_repository,
        steps.DELETE_REPOSITORY,
        _repository_scope,
    ),
    step_route("/settings/tokens", create, steps.CREATE_TOKEN),
    step_route("/settings/revoke", revoke, steps.REVOKE_TOKEN),
    step_route("/settings/password", change_password, steps.CHANGE_PASSWORD),
    step_route("/settings/users", add, steps.ADD_USER),
    step_route("/settings/grant", grant, steps.GRANT_ROLE),  # or take it: for the same people
    step_route("/settings/disable", disable, steps.DISABLE_USER),
    step_route("/settings/enable", enable, steps.ENABLE_USER),
    step_route("/settings/reset-password", reset_password, steps.RESET_PASSWORD),
)
