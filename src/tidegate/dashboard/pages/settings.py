"""Settings: users and their roles, your own API tokens, repositories, and this server."""

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
from tidegate.control.operations import (
    access as operation_access,
    accounts as operation_accounts,
    freezes,
    passwords,
)
from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.operations.subscriptions import SubscriptionOperations
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import account_lines, components, layout as dashboard_layout, window_lines
from tidegate.dashboard.pages.notifications import describe_subscription, subscription_chip
from tidegate.dashboard.view_models import settings_screens
from tidegate.domain.access import callers, roles as access_roles, slices, steps
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.epochs import LOG_IDS, LogId
from tidegate.domain.packages.rows import REPOSITORIES, Repository
from tidegate.domain.windows.rows import Window
from tidegate.errors import TidegateError
from tidegate.kernel.model import Key
from tidegate.web import authentication, inputs, routing

REPOSITORIES_MAX = 200

UserId = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9_]+$")]


class NewTokenForm(inputs.Input, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=slices.TOKEN_DAYS_MAX)] = 30


class NewUserForm(inputs.Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    password: Annotated[str, Meta(max_length=passwords.PASSWORD_CHARS_MAX)] = (
        ""  # empty: they choose it
    )
    role: access_roles.Role = access_roles.Role.VIEWER


class OwnPasswordForm(inputs.Input, frozen=True, kw_only=True):
    current: Annotated[str, Meta(max_length=passwords.PASSWORD_CHARS_MAX)]
    password: Annotated[str, Meta(max_length=passwords.PASSWORD_CHARS_MAX)]


class GrantForm(inputs.Input, frozen=True, kw_only=True):
    user_id: UserId
    role: access_roles.Role
    scope: Annotated[str, Meta(max_length=80)] = access_roles.EVERYWHERE
    take: bool = False


class DisableForm(inputs.Input, frozen=True, kw_only=True):
    user_id: UserId
    reason: Annotated[str, Meta(max_length=slices.REASON_BYTES_MAX // 4)] = ""


class EnableForm(inputs.Input, frozen=True, kw_only=True):
    user_id: UserId


class ResetPasswordForm(inputs.Input, frozen=True, kw_only=True):
    user_id: UserId


class TokenForm(inputs.Input, frozen=True, kw_only=True):
    token_id: Annotated[str, Meta(min_length=1, max_length=64)]


class RepositoryForm(inputs.Input, frozen=True, kw_only=True):
    repository: Annotated[str, Meta(min_length=1, max_length=63)]
    reason: dashboard_layout.Reason


Asked = routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing]


def show(request: Asked, pages: SettingsPages, layout: dashboard_layout.Layout) -> routing.Response:
    """Show the settings page."""
    return layout.answer(request, pages.page_of(request))


@dataclass(frozen=True)
class SettingsPages:
    """Builds the settings page."""

    reads: Reads
    clock: Clock
    settings: Settings
    accounts: operation_accounts.Accounts
    subscriptions: SubscriptionOperations

    def page_of(
        self, request: routing.Request[Any, Any, Any], secret: str = "", link: str = ""
    ) -> dashboard_layout.PageView:
        users = (
            account_lines.list_users(request, self.reads, self.accounts)
            if request.principal.may(access_roles.Verb.AUDIT)
            else ()
        )
        tokens = account_lines.list_tokens(request, self.reads, self.clock, self.accounts)
        repositories = _repositories(request, self.reads)
        verbs = account_lines.list_verbs(request)
        view = settings_screens.SettingsPage(
            me=request.principal.id,
            new_repository=components.LinkButton(
                id="new-repository",
                label="New repository",
                icon="plus",
                href="/new/repository",
                why=request.caller.why_not(steps.CREATE_REPOSITORY, access_roles.EVERYWHERE),
            ),
            users=users,
            tokens=tokens,
            repositories=repositories,
            verbs=verbs,
            secret=secret,
            link=link,
            facts=_facts(self.reads, self.settings),
            windows=window_lines.list_lines(
                self.reads, self.clock(), partial(_may_see_window, request)
            ),
            subscriptions=_subscriptions(request, self.subscriptions),
        )
        rows = [
            *(verb for line in users for verb in line.verbs),
            *(verb for line in tokens for verb in line.verbs),
            *(line.delete for line in repositories),
        ]
        return dashboard_layout.PageView(
            template="settings.html",
            address="/settings",
            title="Settings",
            here="/settings",
            view=view,
            verbs=(*verbs, *rows),
            still=bool(secret or link),
        )


def _log_id(reads: Reads) -> str:
    found = reads.find(Key(LOG_IDS.name, "log"), LogId)
    return "none yet" if found is None else found.row.log_id


def _facts(reads: Reads, settings: Settings) -> tuple[components.Option, ...]:
    kind = settings.store_url.partition(":")[0]
    return (
        components.Option(__version__, "Version"),
        components.Option(kind, "Log"),
        components.Option(_log_id(reads), "Log id"),
        components.Option("yes" if settings.is_secure else "loopback only", "TLS"),
    )


def _subscriptions(
    request: routing.Request[Any, Any, Any], subscriptions: SubscriptionOperations
) -> tuple[settings_screens.SubscriptionLine, ...]:
    lines = []
    for found in subscriptions.list_readable(request.caller):
        row, queue = found.row, subscriptions.queue(found.id)
        events = describe_subscription(row)
        waits = f" · {queue.waiting:,} waiting" if queue.waiting else ""
        dead = f" · {queue.dead:,} given up" if queue.dead else ""
        error = f" · {row.disabled_reason or queue.last_error}"
        lines.append(
            settings_screens.SubscriptionLine(
                name=row.name,
                kind=str(row.kind),
                chip=subscription_chip(row, queue),
                text=f"{events}{waits}{dead}{error.rstrip(' ·')}",
            )
        )
    return tuple(lines)


def _may_see_window(request: routing.Request[Any, Any, Any], row: Window) -> bool:
    """Whether the user may see a window. One of all channels is visible to everyone."""
    scopes = freezes.list_scopes(row.channels)
    return not row.channels or any(
        request.principal.may(access_roles.Verb.READ, it) for it in scopes
    )


def _repositories(
    request: routing.Request[Any, Any, Any], reads: Reads
) -> tuple[settings_screens.RepositoryLine, ...]:
    rows = [item.row for item in reads.range(REPOSITORIES, limit=REPOSITORIES_MAX)]
    return tuple(
        settings_screens.RepositoryLine(
            name=row.name,
            text=_describe_approvals(row),
            edit=components.LinkButton(
                id=f"edit-repository-{number}",
                label="Edit",
                icon="pencil",
                href=f"/repositories/{row.name}/edit",
                why=request.caller.why_not(steps.CHANGE_REPOSITORY, repository_scope(row.name)),
            ),
            delete=_delete_repository(request.caller, row.name, number),
        )
        for number, row in enumerate(rows)
        if request.principal.may(access_roles.Verb.READ, repository_scope(row.name))
    )


def _describe_approvals(row: Repository) -> str:
    """How the revisions of a repository are approved, and what protects them."""
    parts = ["the author can publish alone"]
    if row.quorum:
        people = "another person" if row.quorum == 1 else "other people"
        parts = [f"{row.quorum} approval{'' if row.quorum == 1 else 's'} by {people}"]
    parts += ["hosts are deployed from it"] * row.deployment
    parts += ["proposals are protected"] * row.protect_proposed
    return " · ".join(parts)


def _delete_repository(caller: callers.Caller, name: str, number: int) -> components.VerbButton:
    return components.VerbButton(
        id=f"delete-repository-{number}",
        label="Delete",
        icon="trash",
        action="/settings/delete-repository",
        title=f"Delete the repository {name}?",
        text="It must have no packages, and no channel may carry one of it. The log keeps its "
        "history.",
        fields=(
            components.Field(name="repository", kind="hidden", value=name),
            dashboard_layout.REASON,
        ),
        why=caller.why_not(steps.DELETE_REPOSITORY, repository_scope(name)),
        danger=True,
    )


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def add(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewUserForm],
    access: operation_access.AccessOperations,
    pages: SettingsPages,
    settings: Settings,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Add a user with a role. Only the page that responds shows the link for them."""
    body = request.body
    called, grants = (
        operation_accounts.PersonNames(body.login, body.name),
        (access_roles.Grant(body.role),),
    )
    run = partial(access.add_user, request.caller, called, body.password or None, grants)
    if body.password:
        return _change(request, pages, layout, run, "added")
    try:
        reset = run().reset
    except TidegateError as error:
        return layout.answer(request, pages.page_of(request), problem=error)
    link = "" if reset is None else settings.public_url + operation_access.reset_path(reset)
    return layout.answer(request, pages.page_of(request, link=link))


def grant(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, GrantForm],
    access: operation_access.AccessOperations,
    pages: SettingsPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Grant a role on a scope to another user, or revoke it."""
    body = request.body
    given = access_roles.Grant(body.role, body.scope)
    run = partial(access.revoke if body.take else access.grant, request.caller, body.user_id, given)
    return _change(request, pages, layout, run, "revoked" if body.take else "granted")


def disable(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, DisableForm],
    access: operation_access.AccessOperations,
    pages: SettingsPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Disable a user, with all their sessions and tokens."""
    user_id, reason = request.body.user_id, request.body.reason
    run = partial(access.disable, request.caller, user_id, reason)
    return _change(request, pages, layout, run, "disabled")


def enable(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, EnableForm],
    access: operation_access.AccessOperations,
    pages: SettingsPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Enable a disabled user again."""
    run = partial(access.enable, request.caller, request.body.user_id)
    return _change(request, pages, layout, run, "enabled")


def reset_password(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, ResetPasswordForm],
    pages: SettingsPages,
    access: operation_access.AccessOperations,
    settings: Settings,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Reset another user's password. Only the page that responds shows the link for them."""
    try:
        made = access.reset_password(request.caller, request.body.user_id)
    except TidegateError as error:
        return layout.answer(request, pages.page_of(request), problem=error)
    return layout.answer(
        request,
        pages.page_of(request, link=settings.public_url + operation_access.reset_path(made)),
    )


def _change(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, Any],
    pages: SettingsPages,
    layout: dashboard_layout.Layout,
    run: Callable[[], operation_access.ChangedUser | operation_access.AddedUser],
    done: str,
) -> routing.Response:
    """Change a user, and redirect to the page."""
    page = partial(pages.page_of, request)
    return layout.attempt(request, lambda: run().position, "/settings", done, page)


def change_password(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, OwnPasswordForm],
    pages: SettingsPages,
    access: operation_access.AccessOperations,
    settings: Settings,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change your own password. Every session ends; the response opens a new one."""
    body = request.body
    try:
        changed = access.set_password(request.caller, request.by, body.password, body.current)
    except TidegateError as error:
        return layout.answer(request, pages.page_of(request), problem=error)
    done = urlencode({"done": "password changed", "min_position": changed.position})
    cookie = authentication.set_cookie(changed.session.cookie, settings)
    return dashboard_layout.see_other(f"/settings?{done}", cookie)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


def create(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewTokenForm],
    pages: SettingsPages,
    access: operation_access.AccessOperations,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Make an API token of your own. Only the page that responds shows it."""
    try:
        made = access.create_token(request.caller, request.body.days)
    except TidegateError as error:
        return layout.answer(request, pages.page_of(request), problem=error)
    return layout.answer(request, pages.page_of(request, made.token))


def revoke(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, TokenForm],
    pages: SettingsPages,
    access: operation_access.AccessOperations,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Revoke a token: your own, or anyone's if you may administer."""
    run = partial(access.revoke_token, request.caller, request.body.token_id)
    page = partial(pages.page_of, request)
    return layout.attempt(request, run, "/settings", "revoked", page)


def delete_repository(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, RepositoryForm],
    repositories: RepositoryOperations,
    pages: SettingsPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Delete a repository that nothing uses."""
    run = partial(repositories.delete, request.caller, request.body.repository, request.body.reason)
    return layout.attempt(request, run, "/settings", "deleted", partial(pages.page_of, request))


def _repository_scope(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, RepositoryForm],
) -> str:
    return repository_scope(request.body.repository)


ROUTES = (
    dashboard_layout.page_route("/settings", show, routing.SIGNED_IN),
    dashboard_layout.step_route(
        "/settings/delete-repository", delete_repository, steps.DELETE_REPOSITORY, _repository_scope
    ),
    dashboard_layout.step_route("/settings/tokens", create, steps.CREATE_TOKEN),
    dashboard_layout.step_route("/settings/revoke", revoke, steps.REVOKE_TOKEN),
    dashboard_layout.step_route("/settings/password", change_password, steps.CHANGE_PASSWORD),
    dashboard_layout.step_route("/settings/users", add, steps.ADD_USER),
    dashboard_layout.step_route("/settings/grant", grant, steps.GRANT_ROLE),  # also revokes it
    dashboard_layout.step_route("/settings/disable", disable, steps.DISABLE_USER),
    dashboard_layout.step_route("/settings/enable", enable, steps.ENABLE_USER),
    dashboard_layout.step_route("/settings/reset-password", reset_password, steps.RESET_PASSWORD),
)
