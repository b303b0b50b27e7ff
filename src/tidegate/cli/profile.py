"""The server and the token of a command: from flags, then the environment, then a file.

    --url, --token  ▶  TIDEGATE_URL, TIDEGATE_TOKEN  ▶  $XDG_CONFIG_HOME/tidegate/client.json

``tidegate login`` writes the file with mode 0600. Its token is sent only to the server that issued
it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from tidegate.cli.exit_codes import CommandExit, ExitCode

if TYPE_CHECKING:  # imported late, because completion reads the file at every key press
    from pathlib import Path

URL_DEFAULT = "http://127.0.0.1:8420"
FILE_BYTES_MAX = 64 * 1024


class Profile(NamedTuple):
    """A server and the token for it. Without a token, requests are anonymous."""

    url: str
    token: str | None


def resolve(url: str | None, token: str | None) -> Profile:
    """Combine the flags, the environment and the file.

    Raises:
        CommandExit: the file cannot be read or is not a profile.
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
    """Check that a token can be sent in a header. Raises: CommandExit."""
    text = token.strip()
    if not (text.isascii() and text.isprintable() and text and " " not in text):
        raise CommandExit(
            ExitCode.USAGE, "the token holds characters that no token has", "tidegate login"
        )
    return text


def trimmed(url: str) -> str:
    """Normalise the address for comparing and saving. Raises: CommandExit."""
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
    """The path of the file."""
    root = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(root, "tidegate", "client.json")


def load() -> Profile | None:
    """Load what ``login`` saved; None: nothing. Raises: CommandExit."""
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
    """Write the file atomically, readable only by its owner. Raises: CommandExit."""
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
    """Delete the file; False: there was none."""
    try:
        os.unlink(profile_path())
    except FileNotFoundError:
        return False
    return True
