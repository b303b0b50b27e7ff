"""API tokens: made by their owner, shown once, with no more permissions than the owner."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from tidegate.api.routes.users import Roles
from tidegate.control.operations.access import AccessOperations
from tidegate.control.operations.accounts import Accounts
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import refusals, rows, slices, steps
from tidegate.domain.access.roles import Grant
from tidegate.web import inputs, paging, routing, shapes


class NewToken(inputs.Input, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=slices.TOKEN_DAYS_MAX)] = 30
    roles: Roles | None = None  # null: all that you may do; never more than that


class TokenPath(inputs.Input, frozen=True):
    token_id: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9]+$")]


class TokenShown(Struct, frozen=True):
    token_id: str
    user_id: str
    created_at: datetime | None
    expires_at: datetime
    revoked_at: datetime | None
    grants: tuple[Grant, ...] | None
    parent_id: str | None  # the token that made it; it ends with that one
    active: bool  # false: expired, revoked, or ended with its parent or by a change of password


class TokenMade(Struct, frozen=True):
    token_id: str
    token: str  # shown only in this response
    expires_at: datetime
    position: int


def create_token(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewToken], access: AccessOperations
) -> routing.Response:
    """Make an API token of your own; it is shown only in this response."""
    roles = request.body.roles
    grants = None if roles is None else tuple(item.grant for item in roles)
    made = access.create_token(request.caller, request.body.days, grants)
    shown = TokenMade(made.token_id, made.token, made.expires_at, made.position)
    return routing.Response(shown, position=made.position)


def list_tokens(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    accounts: Accounts,
    cursors: paging.Cursors,
) -> routing.Response:
    """List your own API tokens, without their secrets."""
    found = reads.range(
        rows.API_TOKENS,
        index="by_user",
        of=(request.by,),
        after=cursors.after(request),
        limit=request.query.limit,
    )
    last = found[-1].id if len(found) == request.query.limit else None
    shown = [_token(item, request, reads, accounts) for item in found]
    return routing.Response(cursors.list_page(request, shown, last))


def drop_token(
    request: routing.Request[TokenPath, inputs.Nothing, inputs.Nothing], access: AccessOperations
) -> routing.Response:
    """Revoke an API token: your own, or anyone's if you may administer."""
    position = access.revoke_token(request.caller, request.path.token_id)
    return routing.Response(shapes.Written(position), position=position)


def _token(
    found: Found[rows.ApiToken],
    request: routing.Request[Any, Any, Any],
    reads: Reads,
    accounts: Accounts,
) -> TokenShown:
    row = found.row
    owner = reads.find(rows.user_key(row.user_id), rows.User)
    return TokenShown(
        row.token_id,
        row.user_id,
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.grants,
        row.ancestors[-1] if row.ancestors else None,
        owner is not None and accounts.tokens.is_token_valid(row, owner.row),
    )


ROUTES = (
    routing.Route(
        "POST",
        "/v1/tokens",
        create_token,
        routing.requires_step(steps.CREATE_TOKEN),
        TokenMade,
        status=201,
    ),
    routing.Route("GET", "/v1/tokens", list_tokens, routing.SIGNED_IN, shapes.Listed[TokenShown]),
    routing.Route(
        "POST",
        "/v1/tokens/{token_id}/revoke",
        drop_token,
        routing.requires_step(steps.REVOKE_TOKEN),
        shapes.Written,
        errors=(refusals.TokenNotFound, refusals.NotOwner),
    ),
)
