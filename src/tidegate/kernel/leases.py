"""Leases: at most one holder of a key at a time, with proof of it inside a commit.

    free ──acquire──▶ held ──renew──▶ held ──release, or spent by a commit──▶ free
                        └──── lease_expires_at <= now ────▶ expired, may be acquired

A lease is a row, and its number is the row's version. A version is a log position, so the number
grows with every acquisition, even after the row was deleted. That is how a commit of a late holder
is refused, even if the next holder uses the same token. A lease is held while
``lease_expires_at > now``; at equality it has expired.

Time and tokens are arguments: this module has no clock and no randomness.
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

LEASE_ATTEMPTS_MAX = 16  # how often the row may change between our read and our commit
LEASE_SECONDS_MAX = 366 * 24 * 3_600
RESOLUTION = 0.000_001  # seconds; a shorter lease would expire as soon as it is acquired
TOKEN_BYTES_MAX = 256


class Lease(Struct, frozen=True, omit_defaults=True):
    """The row of a lease.

    This module never writes a row without an expiry. If there is one, no process holds the lease or
    may acquire it until raw access deletes the row.
    """

    lease_token: str = ""
    lease_expires_at: datetime | None = None
    owner: str = ""  # for people who read logs; no decision uses it


LEASES: Final = Collection("leases", Lease)


def leader_key(job: str) -> model.Key:
    """The key of the lease that makes one process the leader of a job; its commits check it."""
    return model.Key(LEASES.name, f"leader/{job}")


class HeldLease(Struct, frozen=True):
    """What the holder knows about its lease. A renewal replaces it: the number changes."""

    key: model.Key
    token: str
    expires_at: datetime
    number: model.Position


# ── rules: pure functions of the row that was read ────────────────────────────────────────────────


def is_free(record: model.Record | None, now: datetime) -> bool:
    """Whether a process may acquire the lease. A row without an expiry is not free."""
    if record is None:
        return True
    expires_at = codec.decode(record.data, Lease).lease_expires_at
    return expires_at is not None and expires_at <= now


def is_held(
    record: model.Record | None, token: str, now: datetime, number: model.Position | None = None
) -> bool:
    """Whether this token holds the lease; with a number, whether under exactly that number."""
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
    """The write that acquires the lease. Raises: LeaseHeld, InvalidInput."""
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
    """The write that renews the lease for ``seconds`` from now. Raises: LeaseLost, InvalidInput."""
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
    """The write that makes a commit depend on the lease and releases it. Raises: LeaseLost.

    DynamoDB allows one action per item in a transaction. So the deletion is also the check.
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
    """The check that makes a commit depend on the lease, which stays held. Raises: LeaseLost."""
    return model.Check(key, demand(key, record, token=token, now=now, number=number).version)


def demand(
    key: model.Key,
    record: model.Record | None,
    *,
    token: str,
    now: datetime,
    number: model.Position | None = None,
) -> model.Record:
    """Return the row if this token holds the lease. Raises: LeaseLost."""
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


# ── operations on a store ─────────────────────────────────────────────────────────────────────────


class Leases:
    """The leases of one collection. Not re-entrant: a second acquire by the holder is refused too.

    Raises:
        InvalidDefinition: the collection's rows are not leases, or its policy protects them.
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
        """Acquire the lease. Raises: LeaseHeld, InvalidInput, AttemptsExhausted."""
        key = self._key(id)
        for _ in range(LEASE_ATTEMPTS_MAX):
            write = take(key, self.find(id), token=token, now=now, seconds=seconds, owner=owner)
            if (held := self._commit_lease(write, now)) is not None:
                return held
        raise errors.AttemptsExhausted(f"the lease {key} changed at every attempt; try again")

    def renew(
        self,
        id: str,
        token: str,
        *,
        now: datetime,
        seconds: float,
        number: model.Position | None = None,
    ) -> HeldLease:
        """Extend the lease to ``seconds`` from now, under a new number.

        Raises:
            LeaseLost, InvalidInput, AttemptsExhausted.
        """
        key = self._key(id)
        for _ in range(LEASE_ATTEMPTS_MAX):
            write = prolong(
                key, self.find(id), token=token, now=now, seconds=seconds, number=number
            )
            if (held := self._commit_lease(write, now)) is not None:
                return held
        raise errors.AttemptsExhausted(f"the lease {key} changed at every attempt; try again")

    def release(self, id: str, token: str, *, now: datetime) -> bool:
        """Release the lease if its row still has your token, even if it has expired.

        Return whether it was released. If the store is unavailable, the lease expires by itself.
        """
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
        """The row of the lease, whether it is held or not; None if there is no row."""
        (record,) = self._store.get(self._key(id))
        return record

    def _key(self, id: str) -> model.Key:
        model.check_text("the key of a lease", id, model.ID_BYTES_MAX)
        return model.Key(self._collection, id)

    def _commit_lease(self, write: model.Put, now: datetime) -> HeldLease | None:
        """Commit the write, and return the held lease; None if the row has changed since."""
        lease = codec.decode(write.data, Lease)
        assert lease.lease_expires_at is not None, "it was just set"
        (outcome,) = self._store.commit(model.Commit(now, writes=(write,)))
        if isinstance(outcome, errors.VersionConflict):
            return None
        if not isinstance(outcome, model.Receipt):
            raise outcome
        return HeldLease(write.key, lease.lease_token, lease.lease_expires_at, outcome.first)
