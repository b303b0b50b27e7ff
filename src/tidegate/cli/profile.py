"""Which server a command asks, and as whom: flags, then the environment, then a file.

    --url, --token  ▶  TIDEGATE_URL, TIDEGATE_TOKEN  ▶  $XDG_CONFIG_HOME/tidegate/client.json

The file is written by ``tidegate login``, mode 0600; a token of it goes only to the server that it
was given for.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from tidegate.cli.exit_codes import CommandExit, ExitCode

if TYPE_CHECKING:  # late: completion reads the file at every press of a key
    from pathlib import Path

URL_DEFAULT = "http://127.0.0.1:8420"
FILE_BYTES_MAX = 64 * 1024


class Profile(NamedTuple):
    """A server and the token for it; no token: ask as nobody."""

    url: str
    token: str | None


def resolve(url: str | None, token: str | None) -> Profile:
    """What the flags, the environment and the file say together.

    Raises:
        Stop: the file cannot be read or is no profile.
    """
    named = url or os.environ.get("TIDEGATE_URL")
    shown = token or os.environ.get("TIDEGATE_TOKEN")
    if shown is not None:
        shown = check_url(shown)
    if named and shown:
        return Profile(trimmed(named), shown)
    kept = load()
    chosen = trimmed(named or (kept.url if kept else URL_DEFAULT))
    if shown is None and kept is not None and kept.url == chosen:
        shown = kept.token
    return Profile(chosen, shown)


def check_url(token: str) -> str:
    """A token as it may stand in a header. Raises: Stop."""
    text = token.strip()
    if not (text.isascii() and text.isprintable() and text and " " not in text):
        raise CommandExit(
            ExitCode.USAGE, "the token holds characters that no token has", "tidegate login"
        )
    return text


def trimmed(url: str) -> str:
    """The address as it is compared and kept. Raises: Stop."""
    text = url.rstrip("/")
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https") or not rest or any(mark in rest for mark in "?# @/"):
        raise CommandExit(
            ExitCode.USAGE,
            f"a server is named http://host:port or https://host, found {url!r}",
            f"tidegate --url {URL_DEFAULT} whoami",
        )
    return text


def profile_path() -> str:
    """Where the file lies."""
    root = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(root, "tidegate", "client.json")


def load() -> Profile | None:
    """What ``login`` kept; None: nothing. Raises: Stop."""
    path = profile_path()
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX)
        found = json.loads(content)
        token = found.get("token")
        return Profile(trimmed(found["url"]), None if token is None else check_url(token))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandExit(
            ExitCode.USAGE, f"{path} is not a profile ({error})", "tidegate login"
        ) from None


def keep(profile: Profile) -> Path:
    """Write the file as a whole, readable by its owner alone. Raises: Stop."""
    from pathlib import Path

    path = Path(profile_path())
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    content = json.dumps({"url": profile.url, "token": profile.token}, indent=2) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        fresh.replace(path)
    except OSError as error:
        raise CommandExit(
            ExitCode.USAGE,
            f"{path} cannot be written: {error.strerror}",
            "tidegate login --no-keep",
        ) from None
    return path


def forget() -> bool:
    """Remove the file; False: there was none."""
    try:
        os.unlink(profile_path())
    except FileNotFoundError:
        return False
    return True
