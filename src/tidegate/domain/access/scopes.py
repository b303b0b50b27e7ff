"""The scopes that grants name: of a channel, and of a repository."""

from __future__ import annotations


def channel_scope(name: str) -> str:
    """The scope of everything that belongs to a channel."""
    return f"channel:{name}"


def repository_scope(name: str) -> str:
    """The scope of everything in a repository."""
    return f"repository:{name}"
