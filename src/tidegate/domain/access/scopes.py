"""The scopes of grants: a channel's and a repository's."""

from __future__ import annotations


def channel_scope(name: str) -> str:
    """The scope of everything that belongs to a channel."""
    return f"channel:{name}"


def repository_scope(name: str) -> str:
    """The scope of everything in a repository."""
    return f"repository:{name}"
