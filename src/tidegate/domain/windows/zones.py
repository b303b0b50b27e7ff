"""Time zones, from the package tzdata and from no other source.

The zone files of the machine are not read: two servers with the same packages agree about every
window, whatever their operating systems contain.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from importlib.metadata import version
from typing import Final
from zoneinfo import ZoneInfo

PACKAGE: Final = "tzdata"
ZONES_MAX = 1_024  # tzdata has about 600


def zone_version() -> str:
    """Return the version of the zones."""
    return version(PACKAGE)


@lru_cache(1)
def zone_names() -> frozenset[str]:
    """Return the names of all zones."""
    listed = resources.files(PACKAGE).joinpath("zones").read_text(encoding="utf-8")
    return frozenset(line.strip() for line in listed.splitlines() if line.strip())


def is_zone(name: str) -> bool:
    return name in zone_names()


@lru_cache(ZONES_MAX)
def find_zone(name: str) -> ZoneInfo:
    """Return the zone of a name for which ``is_zone`` holds."""
    assert is_zone(name), f"{name} is not a time zone"
    path = resources.files(PACKAGE).joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
