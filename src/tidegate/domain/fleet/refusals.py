"""The errors of hosts, labels, selectors and budgets."""

from __future__ import annotations

from tidegate.errors import Conflict, Forbidden, Formatted, Gone, Invalid, NotFound, Refused

SHOWN_CHARS_MAX = 80


class InvalidSelector(Invalid):
    """The selector is malformed; the message names the place and what is allowed there."""

    code = "invalid_selector"

    def __init__(self, text: str, position: int, expected: str) -> None:
        found = text[position : position + SHOWN_CHARS_MAX]
        super().__init__(
            f"selector {text[:SHOWN_CHARS_MAX]!r}, at {position}: "
            f"expected {expected}, found {repr(found) if found else 'the end'}",
            field="selector",
            position=position,
            found=found,
            allowed=expected,
        )


class InvalidLabel(Invalid):
    """The host name or label is malformed."""

    code = "invalid_label"


class HostNotFound(NotFound):
    """There is no host with this name."""

    code = "host_not_found"

    def __init__(self, host_id: str) -> None:
        super().__init__(f"there is no host {host_id[:SHOWN_CHARS_MAX]}", host_id=host_id)


class BudgetNotFound(NotFound):
    """There is no budget with this name."""

    code = "budget_not_found"

    def __init__(self, budget_id: str) -> None:
        super().__init__(f"there is no budget {budget_id[:SHOWN_CHARS_MAX]}", budget_id=budget_id)


class HostIsEnrolled(Formatted, Conflict):
    """The host is enrolled with another key; a re-imaged host needs a token from `re-enroll`."""

    code = "host_enrolled"
    message = (
        "{host_id} is enrolled by another key; if it was re-imaged, make a token with tidegate "
        "host re-enroll {host_id}"
    )
    host_id: str


class HostExists(Formatted, Conflict):
    """A host with this name exists or existed, so a join token cannot take the name."""

    code = "host_exists"
    message = (
        "there is a host {host_id} already, and a join token enrolls new hosts only; if it was "
        "re-imaged, make a token with tidegate host re-enroll {host_id}"
    )
    host_id: str


class HostLeavesProtected(Formatted, Refused):
    """The token's labels would take the host out of a protected channel, or of a window or budget
    there; a second person must approve.
    """

    code = "host_leaves_protected"
    message = (
        "with these labels {host_id} would leave {channel}, which is protected, or a window or "
        "budget there; make the token without labels, then change them with tidegate host label "
        "{host_id}"
    )
    host_id: str
    channel: str


class JoinTokenNotFound(NotFound):
    """There is no join token with this name."""

    code = "join_token_not_found"

    def __init__(self, join_id: str) -> None:
        super().__init__(f"there is no join token {join_id[:SHOWN_CHARS_MAX]}", join_id=join_id)


class HostGone(Formatted, Gone):
    """The host was retired; only a token from `re-enroll` brings it back."""

    code = "host_retired"
    message = (
        "{host_id} was retired; to bring it back, make a token with tidegate host re-enroll "
        "{host_id}"
    )
    host_id: str


class SelectorOverlap(Refused):
    """A host would be in two channels of one package and get two releases of it."""

    code = "selector_overlap"

    def __init__(self, host_id: str, package: str, first: str, second: str) -> None:
        super().__init__(
            f"{host_id} would be in {first} and in {second}, both of package {package}",
            host_id=host_id,
            package=package,
            channels=(first, second),
        )


class BudgetExhausted(Formatted, Refused):
    """Every slot of the budget is taken; one becomes free when a host finishes or rolls back."""

    code = "budget_exhausted"
    message = "all {slots} slots of budget {budget_id} are taken"
    budget_id: str
    slots: int


class TokenRefused(Forbidden):
    """The enrollment token is unknown, too old or for another host; ask for a new one."""

    code = "token_refused"


class TokenReplayed(Formatted, Conflict):
    """The enrollment token was already used; if you used it, open a session with your key."""

    code = "token_replayed"
    message = "the token of {host_id} was used already"
    host_id: str


class KeyRevoked(Forbidden):
    """The host's key was revoked; enroll with a new key and a new token."""

    code = "key_revoked"

    def __init__(self, host_id: str, *, is_replaced: bool = False) -> None:
        detail = f"the key of {host_id} was revoked"
        if is_replaced:
            detail = (
                f"{host_id} enrolled again with another key, which revoked this one; if this is "
                f"the right machine, make a token with tidegate host re-enroll {host_id}"
            )
        super().__init__(detail, host_id=host_id)
