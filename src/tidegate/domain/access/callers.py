"""Who asks for an operation, and what came with the request."""

from __future__ import annotations

from msgspec import Struct

from tidegate.domain.access import principals, refusals, steps
from tidegate.kernel import model, slices


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks for an operation, on which version of it, and under which idempotency key."""

    principal: principals.Principal
    request_id: str = ""
    key: str | None = None  # as the client sent it
    expected_version: model.Position | None = None  # the log position that the client saw
    break_glass: str = ""  # why the caller goes past the approval of a protected channel
    carried_by: str = ""  # who carries it out, where it is done for who asked for it
    alongside: slices.Alongside | None = None  # what is committed with it
    dry_run: bool = False  # decide, and say what would be recorded, and record nothing

    @property
    def id(self) -> str:
        """Who is named in facts."""
        return self.principal.id

    @property
    def meta(self) -> model.Meta:
        return model.Meta(actor=self.carried_by or self.principal.id, request=self.request_id)

    @property
    def commit_key(self) -> str | None:
        """The idempotency key as the log keeps it: two clients never share one."""
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
        """Why the caller may not take this step on this scope; empty: they may."""
        if self.may(step, scope):
            return ""
        return principals.describe_missing(self.principal, step.verbs, scope)

    def may(self, step: steps.Step, scope: str) -> bool:
        """Whether the caller may take this step on this scope."""
        return any(self.principal.may(verb, scope) for verb in step.verbs)
