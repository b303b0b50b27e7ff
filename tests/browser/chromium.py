"""Which Chromium the browser tests drive: the machine's own, or one of the npm registry.

The package `@sparticuz/chromium` contains a headless build for x86-64 Linux, packed with brotli,
together with the libraries that it needs. It is fetched once, checked against its sha512, and
unpacked into `.tools`. `TIDEGATE_TEST_CHROMIUM` names another program.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright._impl._driver import compute_driver_executable

from tests.servers.npm import TOOLS, Package, fetched
from tests.servers.process import ServerUnavailable

CHROMIUM = Package(
    "@sparticuz/chromium",
    "153.0.0",
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
)
VARIABLE = "TIDEGATE_TEST_CHROMIUM"
INSTALLED = ("chromium", "chromium-browser", "google-chrome")
UNPACK_SECONDS_MAX = 300
ARGUMENTS = (
    "--no-sandbox",  # required for root
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)
# Python's library has no brotli; the Node that drives playwright has it.
_UNBROTLI = (
    "const [,from,to]=process.argv,fs=require('fs');"
    "require('stream').pipeline(fs.createReadStream(from),"
    "require('zlib').createBrotliDecompress(),fs.createWriteStream(to),"
    "e=>{if(e){console.error(String(e));process.exit(1)}})"
)


@dataclass(frozen=True, slots=True)
class Browser:
    """A program, and the environment in which it starts."""

    program: str
    environment: dict[str, str]


def browser() -> Browser:
    """The Chromium to drive.

    Raises:
        ServerUnavailable: none is installed, and none can be fetched.
    """
    # A locale of C gives the browser a language tag that its Intl refuses.
    clean = {"LANG": "en_US.UTF-8", "PATH": os.defpath, "HOME": tempfile.gettempdir()}
    if named := os.environ.get(VARIABLE):
        return Browser(named, clean)
    for name in INSTALLED:
        if found := shutil.which(name):
            return Browser(found, clean)
    home = _unpacked(fetched(CHROMIUM) / "package" / "bin")
    libraries = str(home / "al2023" / "lib")
    return Browser(str(home / "chromium"), {**clean, "LD_LIBRARY_PATH": libraries})


def _unpacked(packed: Path) -> Path:
    home = TOOLS / "chromium" / CHROMIUM.version
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=home.parent) as name:
                made = Path(name) / "made"
                made.mkdir()
                _unbrotli(packed / "chromium.br", made / "chromium")
                (made / "chromium").chmod(0o755)
                for part in ("al2023", "swiftshader"):
                    _unbrotli(packed / f"{part}.tar.br", made / f"{part}.tar")
                    with tarfile.open(made / f"{part}.tar") as tar:
                        tar.extraction_filter = getattr(
                            tarfile, "data_filter", lambda member, path: member
                        )
                        tar.extractall(made / part if part == "al2023" else made)
                made.rename(home)
    return home


def _unbrotli(packed: Path, into: Path) -> None:
    node = compute_driver_executable()[0]
    answer = subprocess.run(
        [str(node), "-e", _UNBROTLI, str(packed), str(into)],
        capture_output=True,
        text=True,
        timeout=UNPACK_SECONDS_MAX,
    )
    if answer.returncode:
        raise ServerUnavailable(f"{packed.name} cannot be unpacked: {answer.stderr.strip()}")
