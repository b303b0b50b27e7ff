"""What the screens of maintenance, notifications and settings show."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.dashboard import components
from tidegate.dashboard.view_models import form_screens


class WindowLine(Struct, frozen=True, kw_only=True):
    window_id: str
    chip: components.Chip
    text: str
    reason: str
    openings: tuple[form_screens.OpeningLine, ...]
    edit: components.LinkButton
    delete: components.VerbButton


class FreezeLine(Struct, frozen=True, kw_only=True):
    freeze_id: str
    channels: str
    by: str
    reason: str
    at: datetime
    until: datetime | None
    end: components.VerbButton


class BudgetLine(Struct, frozen=True, kw_only=True):
    budget_id: str
    selector: str
    limit: str
    in_flight: int
    edit: components.LinkButton
    remove: components.VerbButton


class Maintenance(Struct, frozen=True, kw_only=True):
    windows: tuple[WindowLine, ...]
    freezes: tuple[FreezeLine, ...]
    budgets: tuple[BudgetLine, ...]
    create: tuple[components.LinkButton, ...]


class NotificationLine(Struct, frozen=True, kw_only=True):
    """A subscription: what it sends, and the state of its queue."""

    name: str
    kind: str
    chip: components.Chip
    text: str
    queue: str
    error: str
    dead: tuple[str, ...]  # the newest messages that were given up
    edit: components.LinkButton
    verbs: tuple[components.VerbButton, ...]


class Notifications(Struct, frozen=True, kw_only=True):
    lines: tuple[NotificationLine, ...]
    create: components.LinkButton
    test_response: str = ""  # the response of a target to a test message
    secret: str = ""  # of a webhook; shown only once


class UserLine(Struct, frozen=True, kw_only=True):
    user_id: str
    name: str
    chip: components.Chip
    grants: tuple[str, ...]
    tokens: int
    added_at: datetime | None
    verbs: tuple[components.VerbButton, ...] = ()


class TokenLine(Struct, frozen=True, kw_only=True):
    token_id: str
    owner: str
    chip: components.Chip
    created_at: datetime | None
    expires_at: datetime
    grants: str
    verbs: tuple[components.VerbButton, ...] = ()


class SubscriptionLine(Struct, frozen=True, kw_only=True):
    """Who gets which events, and whether messages arrive."""

    name: str
    kind: str
    chip: components.Chip
    text: str


class RepositoryLine(Struct, frozen=True, kw_only=True):
    name: str
    text: str  # how its revisions are approved
    edit: components.LinkButton
    delete: components.VerbButton


class SettingsPage(Struct, frozen=True, kw_only=True):
    me: str
    new_repository: components.LinkButton
    users: tuple[UserLine, ...]
    tokens: tuple[TokenLine, ...]
    repositories: tuple[RepositoryLine, ...]
    verbs: tuple[components.VerbButton, ...]
    secret: str = ""  # a new token; shown only once
    link: str = ""  # of a password reset, for another user; shown only once
    facts: tuple[components.Option, ...] = ()
    windows: tuple[components.Option, ...] = ()
    subscriptions: tuple[SubscriptionLine, ...] = ()
