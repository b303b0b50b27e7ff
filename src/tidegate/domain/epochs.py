"""Epochs: each restore of a backup begins one, with a higher number than all before.

A restored log lacks everything that was acknowledged after the backup. So a restore is recorded as
a fact at the head of the log. A reader that saw a later position of the previous epoch then knows
that this position is gone.

The number is the time of the restore, not a counter. With a counter, restoring the same backup
twice would begin the same epoch twice, and agents would refuse the second one's manifests as old.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import Struct

from tidegate.errors import InvalidInput
from tidegate.kernel import collections, folds, model, slices, tags, vocabulary

LOG = "main"  # there is one per log
FIRST = 1  # the epoch of a log that was never restored
COUNTED_FROM: Final = datetime(2020, 1, 1, tzinfo=UTC)  # in seconds: 31 bits last until 2088


class EpochStarted(Struct, frozen=True, kw_only=True):
    """The log was restored from a backup. Everything after the backup's head is lost."""

    log: Annotated[str, tags.Partition()]
    epoch: int
    backup_head: int  # the last position in the backup
    backed_up_at: datetime
    at: datetime


class Epoch(Struct, frozen=True, kw_only=True):
    """The current epoch of the log. Without a row it is the first."""

    epoch: int
    backup_head: int
    backed_up_at: datetime
    started_at: datetime


class StartEpoch(Struct, frozen=True, kw_only=True):
    """Begin an epoch after a backup was restored and before anything else is written."""

    backup_head: model.Position
    backed_up_at: datetime


class LogId(Struct, frozen=True):
    """The id that a log gets at its first start and keeps."""

    log_id: str


EPOCHS = collections.Collection(
    "epochs", Epoch, writers=collections.Writers.FOLDED, nature=collections.Nature.DERIVED
)
LOG_IDS = collections.Collection("installation_ids", LogId)


def epoch_key() -> model.Key:
    return model.Key(EPOCHS.name, LOG)


def decide_start(
    rows: tuple[Epoch | None], command: StartEpoch, now: datetime
) -> Sequence[EpochStarted]:
    """Raises: InvalidInput: the head is not a valid position."""
    if command.backup_head < 0:
        raise InvalidInput("a backup has a head of 0 or more", field="backup_head")
    (before,) = rows
    number = FIRST if before is None else before.epoch
    seconds = int((now - COUNTED_FROM).total_seconds())
    return (
        EpochStarted(
            log=LOG,
            epoch=max(number + 1, seconds),
            backup_head=command.backup_head,
            backed_up_at=command.backed_up_at,
            at=now,
        ),
    )


def _row(fact: EpochStarted) -> Epoch:
    return Epoch(
        epoch=fact.epoch,
        backup_head=fact.backup_head,
        backed_up_at=fact.backed_up_at,
        started_at=fact.at,
    )


epochs = folds.Fold(
    collection=EPOCHS,
    number=1,
    reads=(EpochStarted,),
    ids=lambda fact: (fact.log,),
    start=lambda id, fact: _row(fact),
    step=lambda row, fact, now: _row(fact),
)
start_epoch = slices.Slice(
    name="start-epoch",
    command=StartEpoch,
    writes=(EpochStarted,),
    rows=lambda command: (epoch_key(),),
    decide=decide_start,
)

FACTS = vocabulary.facts("operations", EpochStarted)
SLICES = (start_epoch,)
COLLECTIONS = (EPOCHS, LOG_IDS)
FOLDS = (epochs,)
