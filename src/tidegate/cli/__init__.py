"""The command line: nouns and verbs, each imported on demand, that call the API over HTTP."""

from __future__ import annotations

from tidegate.cli.root import app

__all__ = ["app"]
