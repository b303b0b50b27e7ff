"""The caller of an operation: a principal and the context of its request."""

from __future__ import annotations

from msgspec import Struct

from tidegate.domain.access import principals, refusals, steps
from tidegate.kernel import model, slices


class Caller(Struct, frozen=True, kw_only=True):
    """The principal that calls an operation, the version it expects and its idempotency key."""

    principal: principals.Principal
    request_id: str = ""
    key: str | None = None  # as the client sent it
    expected_version: model.Position | None = None  # the log position that the client saw
    break_glass: str = ""  # the reason for bypassing the approval of a protected channel
    carried_by: str = ""  # the actor, if it acts on behalf of the principal
    alongside: slices.Alongside | None = None  # a second command for the same commit
    dry_run: bool = False  # decide and return what would be recorded, but record nothing

    @property
    def id(self) -> str:
        """The id that facts name."""
        return self.principal.id

    @property
    def meta(self) -> model.Meta:
        return model.Meta(actor=self.carried_by or self.principal.id, request=self.request_id)

    @property
    def commit_key(self) -> str | None:
        """The idempotency key in the log. The principal's id keeps two clients' keys apart."""
        return None if self.key is None else f"{self.principal.id}:{self.key}"

    def demand(self, step: steps.Step, scope: str) -> None:
        """Check that the caller may take this step on this scope.

        Raises:
            MissingPermission.
            ApprovalsBarred: the step approves, and another person reset the caller's password.
        """
        principals.demand_permission(self.principal, step.verbs, scope)
        until = self.principal.approvals_barred_until
        if until is not None and step in steps.APPROVALS:
            raise refusals.ApprovalsBarred(until)

    def why_not(self, step: steps.Step, scope: str) -> str:
        """Describe why the caller may not take this step on this scope; empty if they may."""
        if self.may(step, scope):
            return ""
        return principals.describe_missing(self.principal, step.verbs, scope)

    def may(self, step: steps.Step, scope: str) -> bool:
        """Whether the caller may take this step on this scope."""
        return any(self.principal.may(verb, scope) for verb in step.verbs)
