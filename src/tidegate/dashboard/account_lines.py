"""The users and API tokens of the settings page, with the forms that change them."""

from __future__ import annotations

from typing import Any

from tidegate.clock import Clock
from tidegate.control.operations import accounts as operation_accounts, passwords
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, layout as dashboard_layout
from tidegate.dashboard.view_models import settings_screens
from tidegate.domain.access import roles as access_roles, rows as access_rows, slices
from tidegate.web import routing

USERS_MAX = 200
TOKENS_MAX = 100
ENABLED = components.Chip("check", "good", "Enabled")
DISABLED = components.Chip("ban", "warn", "Disabled")
ERASED = components.Chip("trash", "gone", "Erased")
VALID = components.Chip("check", "good", "Valid")
EXPIRED = components.Chip("clock", "gone", "Expired")
REVOKED = components.Chip("ban", "gone", "Revoked")
ENDED = components.Chip("ban", "gone", "Ended")  # with its parent, or by a change of password


def list_users(
    request: routing.Request[Any, Any, Any], reads: Reads, accounts: operation_accounts.Accounts
) -> tuple[settings_screens.UserLine, ...]:
    rows = [item.row for item in reads.range(access_rows.USERS, limit=USERS_MAX)]
    administers = request.principal.may(access_roles.Verb.ADMINISTER)
    lines: list[settings_screens.UserLine] = []
    for number, row in enumerate(rows):
        called = accounts.called(row.user_id)
        name = "(erased)" if called is None and row.erased else row.user_id
        lines.append(
            settings_screens.UserLine(
                user_id=row.user_id,
                name=name if called is None else called.name,
                chip=ERASED if row.erased else ENABLED if row.enabled else DISABLED,
                grants=tuple(dashboard_layout.describe_grants(row.grants)),
                tokens=row.tokens,
                added_at=row.added_at,
                verbs=_user_verbs(request, row, number) if administers else (),
            )
        )
    return tuple(lines)


def _user_verbs(
    request: routing.Request[Any, Any, Any], row: access_rows.User, number: int
) -> tuple[components.VerbButton, ...]:
    own = "You cannot change your own access." if row.user_id == request.principal.id else ""
    gone = "The user is erased." if row.erased else ""
    who = components.Field(name="user_id", kind="hidden", value=row.user_id)
    roles = tuple(components.Option(str(role), str(role)) for role in access_roles.Role)
    return (
        components.VerbButton(
            id=f"grant-{number}",
            label="Roles",
            icon="shield",
            action="/settings/grant",
            title="Grant or take a role",
            fields=(
                who,
                components.Field(name="role", label="Role", kind="select", options=roles),
                components.Field(
                    name="scope",
                    label="Where",
                    value=access_roles.EVERYWHERE,
                    hint="* everywhere, repository:<name> or channel:<name>",
                ),
                components.Field(
                    name="take",
                    label="What",
                    kind="choice",
                    value="false",
                    options=(
                        components.Option("false", "Grant", "They get the role."),
                        components.Option("true", "Take", "They lose the role."),
                    ),
                ),
            ),
            why=own or gone,
        ),
        components.VerbButton(
            id=f"disable-{number}",
            label="Disable" if row.enabled else "Enable",
            icon="ban" if row.enabled else "check",
            action="/settings/disable" if row.enabled else "/settings/enable",
            title="Disable the user?" if row.enabled else "Enable the user?",
            text="All their sessions and tokens end at once."
            if row.enabled
            else "They can sign in again.",
            fields=(who, components.Field(name="reason", label="Reason", kind="long"))
            if row.enabled
            else (who,),
            danger=row.enabled,
            why=own or gone,
        ),
        components.VerbButton(
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


def list_tokens(
    request: routing.Request[Any, Any, Any],
    reads: Reads,
    clock: Clock,
    accounts: operation_accounts.Accounts,
) -> tuple[settings_screens.TokenLine, ...]:
    now = clock()
    owner = reads.find(access_rows.user_key(request.principal.id), access_rows.User)
    assert owner is not None, "who is signed in has a row"
    is_good = accounts.tokens.is_token_valid
    rows = reads.range(
        access_rows.API_TOKENS, index="by_user", of=(request.principal.id,), limit=TOKENS_MAX
    )
    lines: list[settings_screens.TokenLine] = []
    for number, item in enumerate(rows):
        row: access_rows.ApiToken = item.row
        chip = REVOKED if row.revoked_at else EXPIRED if row.expires_at <= now else ENDED
        chip = VALID if is_good(row, owner.row) else chip
        may_what = (
            "the same as yours"
            if row.grants is None
            else ", ".join(dashboard_layout.describe_grants(row.grants))
        )
        revoke = components.VerbButton(
            id=f"revoke-{number}",
            label="Revoke",
            icon="ban",
            action="/settings/revoke",
            title="Revoke the token?",
            text="Requests with this token are refused from now on.",
            fields=(components.Field(name="token_id", kind="hidden", value=row.token_id),),
            danger=True,
        )
        lines.append(
            settings_screens.TokenLine(
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


def list_verbs(request: routing.Request) -> tuple[components.VerbButton, ...]:  # type: ignore[type-arg]
    administers = request.principal.may(access_roles.Verb.ADMINISTER)
    roles = tuple(components.Option(str(role), str(role)) for role in access_roles.Role)
    return (
        components.VerbButton(
            id="token",
            label="New token",
            icon="key",
            action="/settings/tokens",
            title="New API token",
            text="It acts in your name with your permissions. It is shown only once.",
            fields=(
                components.Field(
                    name="days",
                    label="Days until it expires",
                    kind="number",
                    value="30",
                    hint=f"At most {slices.TOKEN_DAYS_MAX}.",
                ),
            ),
            first=True,
        ),
        components.VerbButton(
            id="password",
            label="Change password",
            icon="shield",
            action="/settings/password",
            title="Change your password",
            text="Your other sessions and all your API tokens end.",
            fields=(
                components.Field(
                    name="current",
                    label="Current password",
                    kind="password",
                    required=True,
                    completes="current-password",
                ),
                components.Field(
                    name="password",
                    label="New password",
                    kind="password",
                    required=True,
                    completes="new-password",
                    hint=f"At least {passwords.PASSWORD_CHARS_MIN} characters.",
                ),
            ),
        ),
        components.VerbButton(
            id="user",
            label="Add user",
            icon="user",
            action="/settings/users",
            title="Add a user",
            fields=(
                components.Field(name="login", label="Sign-in name", required=True),
                components.Field(name="name", label="Name", required=True),
                components.Field(
                    name="password",
                    label="First password",
                    kind="password",
                    completes="new-password",
                    hint="Leave it empty for a person: you get a link with which they choose it.",
                ),
                components.Field(name="role", label="First role", kind="select", options=roles),
            ),
            why="" if administers else "This needs the role security-admin.",
        ),
    )
