"""Check the operator and the reason of a command before they are recorded."""

from __future__ import annotations

from tidegate.kernel.model import check_text

OPERATOR_BYTES_MAX = 128


REASON_BYTES_MAX = 1_024


def check_operator(operator: str, reason: str) -> None:
    """Check that an operator and a reason are given. Raises: InvalidInput, LimitExceeded."""
    check_text("operator", operator.strip(), OPERATOR_BYTES_MAX)
    check_text("reason", reason.strip(), REASON_BYTES_MAX)
