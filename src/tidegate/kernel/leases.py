"""Leases: at most one holder of a key at a time, and proof of it inside a commit.

    free ──acquire──▶ held ──renew──▶ held ──release, or spent by a commit──▶ free
                        └──── lease_expires_at <= now ────▶ expired, as good as free

A lease is a row. Its number is the row's version, a position: it grows with every acquisition for
ever, also after the row was deleted, so a late holder can be told from the next one even where
both use one token. Held means ``lease_expires_at > now``: at equality it is expired.

Time and tokens are arguments: no clock and no randomness here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, structs

from tidegate import errors
from tidegate.kernel import codec, model
from tidegate.kernel.collections import Collection
from tidegate.kernel.records.write_policy import Guarding
from tidegate.kernel.store import Store

LEASE_ATTEMPTS_MAX = 16  # how often the row may move between our read and our commit
LEASE_SECONDS_MAX = 366 * 24 * 3_600
RESOLUTION = 0.000_001  # seconds; a shorter lease would expire as it is taken
TOKEN_BYTES_MAX = 256


class Lease(Struct, frozen=True, omit_defaults=True):
    """The row of a lease. One that lacks its expiry was not written here: nobody holds it, and
    nobody may take it until raw access removes it.
    """

    lease_token: str = ""
    lease_expires_at: datetime | None = None
    owner: str = ""  # for people who read logs; never compared


LEASES: Final = Collection("leases", Lease)


def leader_key(job: str) -> model.Key:
    """The row of the lease by which one process leads a job; its commits check it."""
    return model.Key(LEASES.name, f"leader/{job}")


class HeldLease(Struct, frozen=True):
    """What its holder knows about a lease. After a renewal the older one is void."""

    key: model.Key
    token: str
    expires_at: datetime
    number: model.Position


# ── rules, on the row that was read ───────────────────────────────────────────────────────────────


def is_free(record: model.Record | None, now: datetime) -> bool:
    """Whether anybody may take the lease. One that never expires is not free."""
    if record is None:
        return True
    expires_at = codec.decode(record.data, Lease).lease_expires_at
    return expires_at is not None and expires_at <= now


def is_held(
    record: model.Record | None, token: str, now: datetime, number: model.Position | None = None
) -> bool:
    """Whether this token holds the lease; with a number, whether in this very acquisition."""
    if record is None:
        return False
    lease = codec.decode(record.data, Lease)
    if lease.lease_expires_at is None or lease.lease_expires_at <= now:
        return False
    return lease.lease_token == token and number in (None, record.version)


def take(
    key: model.Key,
    record: model.Record | None,
    *,
    token: str,
    now: datetime,
    seconds: float,
    owner: str = "",
) -> model.Put:
    """The write that acquires it. Raises: LeaseHeld, InvalidInput."""
    expires_at = _expiry(key, token, now, seconds)
    if record is not None and not is_free(record, now):
        why = "is held"
        if codec.decode(record.data, Lease).lease_expires_at is None:
            why = "has a row without an expiry; delete it by raw access to free the lease"
        raise errors.LeaseHeld(f"the lease {key} {why}", collection=key.collection, id=key.id)
    lease = Lease(token, expires_at, owner)
    return model.Put(key, codec.encode(lease), model.ABSENT if record is None else record.version)


def prolong(
    key: model.Key,
    record: model.Record | None,
    *,
    token: str,
    now: datetime,
    seconds: float,
    number: model.Position | None = None,
) -> model.Put:
    """The write that renews it, from now on. Raises: LeaseLost, InvalidInput."""
    expires_at = _expiry(key, token, now, seconds)
    found = demand(key, record, token=token, now=now, number=number)
    lease = structs.replace(codec.decode(found.data, Lease), lease_expires_at=expires_at)
    return model.Put(key, codec.encode(lease), found.version)


def spend(
    key: model.Key,
    record: model.Record | None,
    *,
    token: str,
    now: datetime,
    number: model.Position | None = None,
) -> model.Delete:
    """The write that lets a commit land only under the lease, and gives it back. Raises: LeaseLost.

    It is the only action on the row: DynamoDB takes one per item, so the proof is the deletion.
    """
    return model.Delete(key, demand(key, record, token=token, now=now, number=number).version)


def keep(
    key: model.Key,
    record: model.Record | None,
    *,
    token: str,
    now: datetime,
    number: model.Position | None = None,
) -> model.Check:
    """The guard that lets a commit land only under the lease, which goes on. Raises: LeaseLost."""
    return model.Check(key, demand(key, record, token=token, now=now, number=number).version)


def demand(
    key: model.Key,
    record: model.Record | None,
    *,
    token: str,
    now: datetime,
    number: model.Position | None = None,
) -> model.Record:
    """The row, if this token holds it. Raises: LeaseLost."""
    if record is None or not is_held(record, token, now, number):
        raise errors.LeaseLost(
            f"the lease {key} is not yours", collection=key.collection, id=key.id
        )
    return record


def _expiry(key: model.Key, token: str, now: datetime, seconds: float) -> datetime:
    model.check_text("the key of a lease", key.id, model.ID_BYTES_MAX)
    model.check_text("the token of a lease", token, TOKEN_BYTES_MAX)
    model.check_time("the time of a lease", now)
    if type(seconds) not in (int, float) or not RESOLUTION <= seconds <= LEASE_SECONDS_MAX:
        raise errors.InvalidInput(
            f"a lease lasts {RESOLUTION} … {LEASE_SECONDS_MAX} seconds, found {seconds!r}"
        )
    return now + timedelta(seconds=seconds)


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────


class Leases:
    """Leases of one collection. Not re-entrant: the holder's second acquire is refused too.

    Raises:
        InvalidDefinition: the collection holds other rows, or guards them.
    """

    def __init__(self, store: Store, collection: str = LEASES.name) -> None:
        declared = store.schema.collection(collection)
        if declared.model is not Lease or declared.guarding is not Guarding.PLAIN:
            raise errors.InvalidDefinition(f"{collection} must keep plain, mutable rows of Lease")
        self._store = store
        self._collection = collection

    def acquire(
        self, id: str, token: str, *, now: datetime, seconds: float, owner: str = ""
    ) -> HeldLease:
        """Take it. Raises: LeaseHeld, InvalidInput."""
        key = self._key(id)
        for _ in range(LEASE_ATTEMPTS_MAX):
            write = take(key, self.find(id), token=token, now=now, seconds=seconds, owner=owner)
            if (held := self._held(write, now)) is not None:
                return held
        raise errors.AttemptsExhausted(f"the lease {key} did not hold still")

    def renew(
        self,
        id: str,
        token: str,
        *,
        now: datetime,
        seconds: float,
        number: model.Position | None = None,
    ) -> HeldLease:
        """Hold it until ``seconds`` from now, under a new number.

        Raises:
            LeaseLost, InvalidInput.
        """
        key = self._key(id)
        for _ in range(LEASE_ATTEMPTS_MAX):
            write = prolong(
                key, self.find(id), token=token, now=now, seconds=seconds, number=number
            )
            if (held := self._held(write, now)) is not None:
                return held
        raise errors.AttemptsExhausted(f"the lease {key} did not hold still")

    def release(self, id: str, token: str, *, now: datetime) -> bool:
        """Give it back if it is still yours, expired or not. Best effort: else it expires."""
        model.check_text("the token of a lease", token, TOKEN_BYTES_MAX)
        try:
            record = self.find(id)
            if record is None or codec.decode(record.data, Lease).lease_token != token:
                return False
            (outcome,) = self._store.commit(
                model.Commit(now, writes=(model.Delete(record.key, record.version),))
            )
        except (errors.Unavailable, errors.Unknown):
            return False
        return isinstance(outcome, model.Receipt)

    def find(self, id: str) -> model.Record | None:
        """The row of the lease, held or not."""
        (record,) = self._store.get(self._key(id))
        return record

    def _key(self, id: str) -> model.Key:
        model.check_text("the key of a lease", id, model.ID_BYTES_MAX)
        return model.Key(self._collection, id)

    def _held(self, write: model.Put, now: datetime) -> HeldLease | None:
        """The lease as the commit made it; None if the row moved since it was read."""
        lease = codec.decode(write.data, Lease)
        assert lease.lease_expires_at is not None, "it was just set"
        (outcome,) = self._store.commit(model.Commit(now, writes=(write,)))
        if isinstance(outcome, errors.VersionConflict):
            return None
        if not isinstance(outcome, model.Receipt):
            raise outcome
        return HeldLease(write.key, lease.lease_token, lease.lease_expires_at, outcome.first)
