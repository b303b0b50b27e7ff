"""Renders views to HTML: the templates, their filters, and the names of static files.

Autoescape is always on, undefined names are errors, and no script or style is inline. The address
of a static file has a digest of all of them, so that browsers may cache it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from tidegate.dashboard.components import Frame

HERE = Path(__file__).parent
STATIC = HERE / "static"
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".md": "text/plain; charset=utf-8",
    ".LICENSE": "text/plain; charset=utf-8",
}
SHORT_CHARS = 12
_DIGEST = re.compile(r"\bsha256:[0-9a-f]{64}\b")


def render(template: str, frame: Frame, view: Struct | None = None) -> bytes:
    """Render a page as bytes of HTML."""
    return _environment().get_template(template).render(frame=frame, view=view).encode()


def render_part(template: str, view: Struct) -> bytes:
    """Render a part of a page, which the browser inserts."""
    return _environment().get_template(template).render(view=view).encode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = asset
    environment.filters.update(
        absolute=absolute,
        ago=ago,
        counted=counted,
        iso=iso,
        number=number,
        short=short,
        shortened=shortened,
        seconds=seconds,
        size=size,
    )
    return environment


# ── static files ──────────────────────────────────────────────────────────────────────────────────


@cache
def static_files() -> dict[str, tuple[str, bytes]]:
    """Every static file by its name: media type and bytes."""
    return {
        path.relative_to(STATIC).as_posix(): (MEDIA[path.suffix], path.read_bytes())
        for path in sorted(STATIC.rglob("*"))
        if path.is_file()
    }


@cache
def fingerprint() -> str:
    """A digest that changes with any file, so that no cached address is ever stale."""
    digest = sha256()
    for name, (_, content) in static_files().items():
        digest.update(name.encode() + b"\0" + sha256(content).digest())
    return digest.hexdigest()[:16]


def asset(name: str) -> str:
    assert name in static_files(), name
    return f"/static/{fingerprint()}/{name}"


# ── filters ───────────────────────────────────────────────────────────────────────────────────────


def iso(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def absolute(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: datetime, now: datetime) -> str:
    """How long ago, or in how long, in one unit."""
    passed = now - at
    text = seconds(int(abs(passed).total_seconds()))
    if abs(passed) < timedelta(seconds=5):
        return "now"
    return f"{text} ago" if passed > timedelta(0) else f"in {text}"


def seconds(count: int) -> str:
    """A duration in its largest whole unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if count >= 2 * length or (count >= length and count % length == 0):
            return f"{count // length} {unit}"
    return f"{count} s"


def number(value: int) -> str:
    return f"{value:,}"


OPENERS: Final = frozenset(
    {"a", "an", "the", "another", "every", "some", "no", "only", "not"}
    | {"it", "its", "that", "this", "there", "you", "your"}
)


def sentence(text: str) -> str:
    """A message with a capital, unless it begins with a name, which keeps its letters."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0] in OPENERS else text


def counted(count: int, noun: str) -> str:
    """``1 host``, ``2 hosts``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short(digest: str) -> str:
    """The beginning of a digest, without its algorithm."""
    return digest.rpartition(":")[2][:SHORT_CHARS]


def shortened(text: str) -> str:
    """A sentence in which each digest is cut to its beginning."""
    return _DIGEST.sub(lambda found: short(found[0]), text)


def size(count: int) -> str:
    for unit, length in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} B"
