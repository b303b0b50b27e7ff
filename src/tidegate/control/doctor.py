"""The checks of ``doctor``: each finding has a verdict, and advice if something is wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.queries.fleet_picture import FleetPictures
from tidegate.control.secrets import SECRET_FILE
from tidegate.domain.access import roles, rows as access_rows
from tidegate.domain.epochs import FIRST, Epoch, epoch_key
from tidegate.domain.fleet import agent_versions
from tidegate.domain.outbox import rows as outbox_rows, states
from tidegate.domain.windows.zones import zone_version
from tidegate.kernel.collections import entry

DISK_BYTES_MIN = 256 * 1024 * 1024
DISK_SHARE_MIN = 0.05
CLOCK_AHEAD_MAX = timedelta(minutes=5)
OUTBOX_SECONDS_MAX = 3_600
DIFFERENCES_SHOWN_MAX = 5
DEAD_COUNTED_MAX = 100
EVERYBODY = 0o077  # the permission bits of everyone but the owner


class DoctorVerdict(StrEnum):
    """The verdict of a check."""

    WELL = "well"
    NOTE = "note"  # worth knowing; nothing is wrong
    ILL = "ill"


class DoctorFinding(Struct, frozen=True, omit_defaults=True):
    """The result of one check."""

    what: str
    verdict: DoctorVerdict
    detail: str
    advice: str = ""  # what to do about it


def check_directory(settings: Settings) -> Iterator[DoctorFinding]:
    """Check the data directory, before anything in it is opened."""
    data = Path(settings.data)
    if not data.is_dir():
        advice = "name the right one, or start tidegate serve once: it makes it"
        yield _ill("data", f"{data} is no directory", advice)
        return
    yield _private("data", data, "0700")
    secret = data / SECRET_FILE
    if secret.exists():
        yield _private(SECRET_FILE, secret, "0600")
    else:
        yield DoctorFinding(SECRET_FILE, DoctorVerdict.NOTE, "none yet; the first start makes it")
    yield _disk(data)


def check_installation(installation: Installation) -> Iterator[DoctorFinding]:
    """Check the log and everything that depends on it."""
    yield _writable(installation)
    yield _clock(installation)
    yield _outbox(installation)
    yield _dead(installation)
    yield _epoch(installation)
    yield _rollouts(installation)
    yield _on_call(installation)
    yield _agents(installation)
    yield DoctorFinding("time zones", DoctorVerdict.WELL, f"tzdata {zone_version()}")


def check_views(installation: Installation) -> DoctorFinding:
    """Compare every derived row with a replay of the log; slow if the log is long."""
    found = installation.health.differences()
    if not found:
        return DoctorFinding("views", DoctorVerdict.WELL, "every row is what the log says")
    first = ", ".join(item.key for item in found[:DIFFERENCES_SHOWN_MAX])
    return _ill(
        "views",
        f"{len(found)} differences, such as {first}",
        "stop the server, run tidegate backup, then tidegate views rebuild",
    )


# ── one by one ────────────────────────────────────────────────────────────────────────────────────


def _private(what: str, path: Path, mode: str) -> DoctorFinding:
    status = path.stat()
    if status.st_mode & EVERYBODY:
        return _ill(what, f"others can read {path.name}", f"chmod {mode} {path}")
    if status.st_uid != os.geteuid():
        advice = f"run as its owner, or chown it to user {os.geteuid()}"
        return _ill(what, f"{path.name} belongs to user {status.st_uid}", advice)
    return DoctorFinding(what, DoctorVerdict.WELL, f"{path.name} is its owner's alone")


def _disk(data: Path) -> DoctorFinding:
    usage = shutil.disk_usage(data)
    free = f"{usage.free // 2**20} MiB free of {usage.total // 2**20}"
    if usage.free < DISK_BYTES_MIN:
        return _ill("disk", free, "make room: commits fail when the disk is full")
    if usage.free < usage.total * DISK_SHARE_MIN:
        return DoctorFinding("disk", DoctorVerdict.NOTE, free, "make room before it is short")
    return DoctorFinding("disk", DoctorVerdict.WELL, free)


def _writable(installation: Installation) -> DoctorFinding:
    head = installation.log.head()
    fault = installation.health.write_fault()
    if fault:
        return _ill("log", f"takes no commits: {fault}", "see the detail; nothing was lost")
    return DoctorFinding("log", DoctorVerdict.WELL, f"takes commits; its head is {head}")


def _clock(installation: Installation) -> DoctorFinding:
    head = installation.log.head()
    for event in installation.log.feed(after=head - 1, limit=1) if head else ():
        behind = event.at - installation.clock()
        if behind > CLOCK_AHEAD_MAX:
            detail = f"is {int(behind.total_seconds())} s before the newest event"
            advice = (
                "set the clock (is NTP running?). If it is right and once ran ahead, start"
                " serve and worker with --accept-clock"
            )
            return _ill("clock", detail, advice)
    return DoctorFinding(
        "clock", DoctorVerdict.WELL, f"{installation.clock():%Y-%m-%d %H:%M:%S} UTC"
    )


def _outbox(installation: Installation) -> DoctorFinding:
    age = installation.health.outbox_age()
    detail = f"the longest overdue work has been due for {age} s"
    if age > OUTBOX_SECONDS_MAX:
        return _ill("outbox", detail, "is a worker running? then see tidegate outbox list")
    return DoctorFinding("outbox", DoctorVerdict.WELL, detail)


def _dead(installation: Installation) -> DoctorFinding:
    found = installation.store.range(
        outbox_rows.DELIVERIES.name,
        index="by_state",
        prefix=entry(states.IntentState.DEAD, ""),
        limit=DEAD_COUNTED_MAX,
    )
    if found:
        count = f"{len(found)}{' or more' if len(found) == DEAD_COUNTED_MAX else ''}"
        advice = (
            "tidegate outbox list --state dead shows them; mend the receiver, then tidegate outbox "
            "redrive INTENT --reason …"
        )
        return DoctorFinding("dead letters", DoctorVerdict.NOTE, f"{count} given up", advice)
    return DoctorFinding("dead letters", DoctorVerdict.WELL, "none")


def _epoch(installation: Installation) -> DoctorFinding:
    found = installation.reads.find(epoch_key(), Epoch)
    if found is None:
        return DoctorFinding("epoch", DoctorVerdict.WELL, f"{FIRST}: never restored")
    row = found.row
    return DoctorFinding(
        "epoch",
        DoctorVerdict.NOTE,
        f"{row.epoch}: restored at {row.started_at:%Y-%m-%d %H:%M} UTC from position "
        f"{row.backup_head}",
        f"run tidegate host revoke HOST --reason …, for each host whose key was revoked after "
        f"{row.backed_up_at:%Y-%m-%d %H:%M} UTC: the log forgot it",
    )


def _rollouts(installation: Installation) -> DoctorFinding:
    """Check that the dispatcher can read every open rollout."""
    fleet_reader = installation.fleet_reader
    ids = [row.rollout_id for row in fleet_reader.open_rollouts()]
    faults = fleet_reader.state(ids, installation.clock(), late=True).faults if ids else {}
    if not faults:
        return DoctorFinding(
            "rollouts", DoctorVerdict.WELL, f"{len(ids)} under way, all can be read"
        )
    first = next(iter(faults.values()))
    return _ill(
        "rollouts",
        f"{len(faults)} of {len(ids)} get no orders, such as {first.rollout_id}: {first.detail}",
        "restore its plan's blob from a copy, or promote again, so that a plan is made",
    )


def _on_call(installation: Installation) -> DoctorFinding:
    """Check that someone has the permission emergency."""
    found = 0
    for user in installation.reads.iterate(access_rows.USERS):
        may = any(roles.Verb.EMERGENCY in roles.VERBS[grant.role] for grant in user.row.grants)
        found += may and user.row.enabled and not user.row.erased
    if found:
        return DoctorFinding("on call", DoctorVerdict.WELL, f"{found} may act in an emergency")
    return DoctorFinding(
        "on call",
        DoctorVerdict.NOTE,
        "no user may roll a channel back at once or override a gate",
        "tidegate user grant LOGIN on-call",
    )


def _agents(installation: Installation) -> DoctorFinding:
    """Check that every host's agent is new enough for this server."""
    found = FleetPictures(installation.reads, installation.clock).look().old_agents
    if not found:
        return DoctorFinding(
            "agents", DoctorVerdict.WELL, f"none is older than {agent_versions.AGENT_VERSION_MIN}"
        )
    advice = f"upgrade them; {agent_versions.OLD_AGENTS_COMMAND} lists all of them"
    return DoctorFinding(
        "agents", DoctorVerdict.NOTE, agent_versions.old_agents_text(found), advice
    )


def _ill(what: str, detail: str, advice: str) -> DoctorFinding:
    return DoctorFinding(what, DoctorVerdict.ILL, detail, advice)
