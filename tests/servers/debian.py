"""Programs of Debian packages, unpacked into `.tools`: apt checks the signature, without root."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from pathlib import Path

from tests.servers.npm import TOOLS
from tests.servers.process import ServerUnavailable

FETCH_SECONDS_MAX = 300


def unpacked(package: str) -> Path:
    """The directory with the files of a package, unpacked into `.tools` unless it is there.

    Raises:
        ServerUnavailable: apt cannot fetch it.
    """
    home = TOOLS / "debian" / package
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=home.parent) as name:
                folder = Path(name)
                _run(["apt-get", "download", package], folder)
                (archive,) = folder.glob("*.deb")
                _run(["dpkg", "-x", archive.name, "unpacked"], folder)
                (folder / "unpacked").rename(home)
    return home


def _run(words: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerUnavailable(f"{' '.join(words)}: {error}") from error
    if done.returncode:
        raise ServerUnavailable(f"{' '.join(words)} says: {done.stderr.strip()[-300:]}")
