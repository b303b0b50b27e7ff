"""Write a directory of files to push."""

from __future__ import annotations

from pathlib import Path


def files(place: Path, **content: str) -> str:
    """A directory with these files; in a name, __ is a slash and _ a dot."""
    place.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        path = place / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(place)
