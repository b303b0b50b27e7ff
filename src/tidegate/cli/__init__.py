"""The command line: nouns and verbs, each imported when it is asked for, speaking HTTP."""

from __future__ import annotations

from tidegate.cli.root import app

__all__ = ["app"]
