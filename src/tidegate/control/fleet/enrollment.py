"""Enroll agents: make and trade tokens, verify keys, open sessions, revoke keys.

    make_token ──▶ trade (token + key + proof) ──▶ open_session (proof) ──▶ host_of each request
                                                                end_key ──▶ refused

Sessions are not stored. A session's name holds the host, the end and the public key, and its MAC
key is derived from the name and the server's secret. So every server with the secret can compute
it, and sessions survive a restart.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from tidegate import decoders
from tidegate.clock import Clock
from tidegate.control.fleet import agent_sessions, request_macs, used_proofs
from tidegate.control.lanes import Lanes
from tidegate.control.publication.manifests import key_id
from tidegate.control.queries import host_limits
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.control.secrets import Secrets
from tidegate.domain.channels.rows import ProtectedChannels, protected_channels_key
from tidegate.domain.fleet import credentials, joins as fleet_joins, refusals, rows, slices
from tidegate.domain.fleet.selectors import check_host_id, check_labels
from tidegate.domain.hosts import protocol
from tidegate.errors import ConditionFailed, Forbidden, IdempotencyMismatch, InvalidInput
from tidegate.kernel.collections import Collection
from tidegate.kernel.model import Meta, check_text
from tidegate.kernel.records.records import Records

TOKEN_PREFIX = "te"
JOIN_PREFIX = "tj"
PRUNED_MAX = 10_000  # rows per call
PAGE = 500


UNPROVED: Final = "the signature does not prove the key of this host"


class BadProof(Forbidden):
    """The signature is not valid for this key and this request."""

    code = "bad_proof"


class MadeToken(Struct, frozen=True):
    """A new one-time token; its text is shown only once."""

    token_id: str
    token: str
    host_id: str
    expires_at: datetime


def manifest_key(secrets: Secrets) -> Ed25519PrivateKey:
    """Return the key that signs the installation's channel manifests."""
    return Ed25519PrivateKey.from_private_bytes(secrets.key("manifests"))


class Enrollment:
    """Enrolls agents and authenticates them."""

    def __init__(
        self,
        reads: Reads,
        records: Callable[[Meta], Records],
        lanes: Lanes,
        secrets: Secrets,
        clock: Clock,
        log_id: Callable[[], str],
        notify: Callable[[], None],  # called after a commit
        key_listeners: Sequence[Callable[[], None]],  # called when a key has ended
    ) -> None:
        self._reads = reads
        self._records = records
        self._lanes = lanes
        self._secrets = secrets
        self._clock = clock
        self._log_id = log_id
        self._notify = notify
        self._key_listeners = key_listeners
        self._used_proofs = used_proofs.UsedProofs()
        self._session_keys = request_macs.RequestMacs(secrets.key("agents"))

    # ── tokens ──

    def make_token(
        self, token_id: str, host_id: str, labels: dict[str, str] | None, meta: Meta
    ) -> MadeToken:
        """Make a token for this host. A repeat with the same id returns the same token.

        Raises:
            InvalidLabel, HostGone, HostLeavesProtected, IdempotencyMismatch.
        """
        check_host_id(host_id)
        check_labels(labels or {})
        known = self._reads.find(rows.host_key(host_id), rows.Host)
        if known is not None and known.row.status == rows.RETIRED:
            raise refusals.HostGone(host_id)
        self._demand_stays(host_id, labels)
        return self._keep_token(
            credentials.EnrollmentToken(
                token_id=token_id,
                host_id=host_id,
                operator=meta.actor,
                expires_at=self._clock() + credentials.TOKEN_LIFE,
                labels=labels,
            ),
            meta,
        )

    def make_replacing_token(
        self, token_id: str, host_id: str, labels: dict[str, str] | None, reason: str, meta: Meta
    ) -> MadeToken:
        """Make a token with which a known host enrolls again. Trading it revokes the host's current
        key, and brings back a retired host. A repeat with the same id returns the same token.

        Raises:
            HostNotFound, InvalidLabel, HostLeavesProtected, InvalidInput, IdempotencyMismatch.
        """
        check_labels(labels or {})
        if reason:
            check_text("a reason", reason, slices.REASON_BYTES_MAX)
        known = self._reads.demand(
            rows.host_key(host_id), rows.Host, refusals.HostNotFound(host_id)
        ).row
        self._demand_stays(host_id, labels)
        return self._keep_token(
            credentials.EnrollmentToken(
                token_id=token_id,
                host_id=host_id,
                operator=meta.actor,
                expires_at=self._clock() + credentials.TOKEN_LIFE,
                labels=labels,
                replaces=known.public_key,
                was_retired=known.status == rows.RETIRED,
                reason=reason,
            ),
            meta,
        )

    def _demand_stays(self, host_id: str, labels: dict[str, str] | None) -> None:
        """Check that a token's labels do not take a known host out of a protected channel, or out
        of what holds it back there. Channels may change meanwhile, so this is checked when the
        token is made and when it is traded.

        Raises:
            HostLeavesProtected.
        """
        protected = self._reads.find(protected_channels_key(), ProtectedChannels)
        if labels is None or protected is None:
            return
        for channel in host_limits.list_loosened(self._reads, host_id, labels):
            if channel in protected.row.channels:
                raise refusals.HostLeavesProtected(host_id, channel)

    def _keep_token(self, made: credentials.EnrollmentToken, meta: Meta) -> MadeToken:
        """Raises: IdempotencyMismatch."""
        token_id = made.token_id
        try:
            self._records(meta).create(credentials.ENROLLMENT_TOKENS.name, token_id, made)
        except ConditionFailed:
            found = self._reads.find(credentials.token_key(token_id), credentials.EnrollmentToken)
            if found is None or _asked(found.row) != _asked(made):
                raise IdempotencyMismatch(token_id) from None
            made = found.row
        token = f"{TOKEN_PREFIX}_{token_id}_{self._secret(token_id)}"
        return MadeToken(token_id, token, made.host_id, made.expires_at)

    def void_tokens(self, meta: Meta) -> int:
        """Delete all tokens, used or not; return how many there were.

        A restored log does not show which of them were used after the backup.
        """
        records = self._records(meta)
        tokens = [found.id for found in self._reads.iterate(credentials.ENROLLMENT_TOKENS)]
        for token_id in tokens:
            records.delete(credentials.ENROLLMENT_TOKENS.name, token_id)
        joins = [found.id for found in self._reads.iterate(fleet_joins.JOIN_TOKENS)]
        for join_id in joins:
            command = fleet_joins.DeleteJoinToken(join_id=join_id, operator=meta.actor)
            self._lanes.record(
                rows.FLEET, fleet_joins.delete_join_token, command, meta=meta
            ).result()
        return len(tokens) + len(joins)

    def join_token(self, join_id: str) -> str:
        """Return the secret text of a join token."""
        return f"{JOIN_PREFIX}_{join_id}_{self._join_secret(join_id)}"

    def _join_secret(self, join_id: str) -> str:
        return self._secrets.mac("enrollment", f"join {join_id}".encode()).hex()

    def _secret(self, token_id: str) -> str:
        return self._secrets.mac("enrollment", token_id.encode()).hex()

    def join(
        self, token: str, host_id: str, public_key: str, proof: str
    ) -> tuple[protocol.EnrollmentAnswer, CommandOutcome]:
        """Enroll a new host with this key, by a join token.

        Raises:
            TokenRefused, HostExists, KeyRevoked, BadProof, InvalidLabel, SelectorOverlap,
                StoreUnavailable.
        """
        join_id, _, secret = token.removeprefix(f"{JOIN_PREFIX}_").partition("_")
        if not hmac.compare_digest(secret.encode(), self._join_secret(join_id).encode()):
            raise refusals.TokenRefused("the join token is unknown or was deleted")
        check_host_id(host_id)
        _check_order(public_key)
        _check_proof(public_key, proof, protocol.join_message(token, host_id, public_key))
        found = self._reads.find(fleet_joins.join_key(join_id), fleet_joins.JoinToken)
        if found is None:
            raise refusals.TokenRefused("the join token is unknown or was deleted")
        command = fleet_joins.JoinHost(join_id=join_id, host_id=host_id, public_key=public_key)
        meta = Meta(actor=found.row.operator)
        outcome = self._lanes.record(rows.FLEET, fleet_joins.join_host, command, meta=meta).result()
        self._notify()
        return self._enrolled(host_id), outcome

    def trade(
        self, token: str, public_key: str, proof: str
    ) -> tuple[protocol.EnrollmentAnswer, CommandOutcome]:
        """Enroll the token's host with this key. Enrollments run one after another in the lane of
        the fleet, because each of them changes the fleet's row.

        Raises:
            TokenRefused, TokenReplayed, KeyRevoked, BadProof, HostIsEnrolled, HostGone,
                HostLeavesProtected, SelectorOverlap, StoreUnavailable.
        """
        prefix, _, rest = token.partition("_")
        token_id, _, secret = rest.partition("_")
        right = hmac.compare_digest(secret.encode(), self._secret(token_id).encode())
        found = None
        if right and prefix == TOKEN_PREFIX and token_id:
            found = self._reads.find(credentials.token_key(token_id), credentials.EnrollmentToken)
        if found is None:
            raise refusals.TokenRefused("the enrollment token is unknown")
        _check_order(public_key)
        _check_proof(public_key, proof, protocol.enrollment_message(token, public_key))
        self._demand_stays(found.row.host_id, found.row.labels)
        command = credentials.TradeToken(
            token_id=token_id,
            host_id=found.row.host_id,
            public_key=public_key,
            replaces=found.row.replaces,
        )
        meta = Meta(actor=found.row.operator)
        try:
            outcome = self._lanes.record(
                rows.FLEET, credentials.trade_token, command, meta=meta
            ).result()
        finally:  # an error may have occurred after the commit
            if found.row.replaces:
                self._notify_key_listeners()
        self._notify()
        return self._enrolled(found.row.host_id), outcome

    def _enrolled(self, host_id: str) -> protocol.EnrollmentAnswer:
        key = manifest_key(self._secrets).public_key()
        keys = {key_id(key): key.public_bytes_raw().hex()}
        return protocol.EnrollmentAnswer(host_id, self._log_id(), keys)

    # ── sessions ──

    def open_session(
        self, host_id: str, time: int, nonce: str, proof: str
    ) -> protocol.SessionAnswer:
        """Open a session for a host that proves its key, once per nonce, and return the MAC key.

        Raises:
            BadProof: the host is unknown, or the proof was made with another key.
            HostGone, KeyRevoked, ClockSkewed, ProofReplayed.
        """
        found = self._reads.find(rows.host_key(host_id), rows.Host)
        if found is None:  # as for a wrong proof: do not reveal which hosts are enrolled
            raise BadProof(UNPROVED)
        host = found.row
        message = protocol.session_message(host_id, time, nonce)
        try:
            _check_proof(host.public_key, proof, message)
        except BadProof:
            if host.replaced_key:
                _check_proof(host.replaced_key, proof, message)
                raise refusals.KeyRevoked(host_id, is_replaced=True) from None
            raise
        now = self._clock()
        agent_sessions.check_skew(time, now)
        self.demand_valid(host.host_id, host.public_key)
        # Remember what was signed, not the signature: one message may have several signatures.
        if not self._used_proofs.use(f"{host_id} {time} {nonce}", now):
            raise used_proofs.ProofReplayed("this proof opened a session before; sign a new nonce")
        expires_at = (now + timedelta(seconds=protocol.SESSION_SECONDS)).replace(microsecond=0)
        session = str(
            agent_sessions.AgentSession(host_id, int(expires_at.timestamp()), host.public_key)
        )
        return protocol.SessionAnswer(session, self.session_key(session).hex(), expires_at, now)

    def session_key(self, session: str) -> bytes:
        """Derive a session's MAC key from the server's secret."""
        return self._session_keys.mac(session.encode())

    def demand_valid(self, host_id: str, public_key: str) -> None:
        """Check that this is the host's valid key. Raises: HostNotFound, HostGone, KeyRevoked."""
        host, revoked = self._reads.find_all(
            (rows.host_key(host_id), agent_sessions.KeyStanding),
            (credentials.revocation_key(public_key), credentials.Revocation),
        )
        if host is None:
            raise refusals.HostNotFound(host_id)
        if host.row.status == rows.RETIRED:
            raise refusals.HostGone(host_id)
        if host.row.public_key != public_key:
            raise refusals.KeyRevoked(host_id, is_replaced=True)
        if revoked is not None or host.row.status != rows.ENROLLED:
            raise refusals.KeyRevoked(host_id)

    # ── the end ──

    @contextmanager
    def end_key(self, host_id: str, reason: str, meta: Meta) -> Iterator[None]:
        """Refuse the host's key, then run the command that records its end inside this context.

        Only ``HostOperations`` ends keys: no other code runs such commands or writes revocations.
        """
        try:
            self._shut(host_id, meta.actor, reason, meta)
            yield
        finally:  # the command may have failed after its commit
            self._notify_key_listeners()

    def _shut(self, host_id: str, operator: str, reason: str, meta: Meta) -> None:
        found = self._reads.find(rows.host_key(host_id), rows.Host)
        if found is None or found.row.status != rows.ENROLLED:
            return
        row = credentials.Revocation(found.row.public_key, host_id, self._clock(), operator, reason)
        self._records(meta).save(credentials.CERT_REVOCATIONS.name, row.public_key, row)
        self._notify_key_listeners()  # before the command runs, and even if it fails

    def _notify_key_listeners(self) -> None:
        for listener in self._key_listeners:
            listener()

    def prune(self) -> int:
        """Delete tokens and revocations that no longer matter; return how many rows."""
        now = self._clock()
        return (
            self._prune(
                credentials.ENROLLMENT_TOKENS, lambda row: row.expires_at + credentials.KEPT < now
            )
            + self._prune(
                credentials.TOKEN_REPLAY,
                lambda row: row.first_seen + credentials.TOKEN_LIFE + credentials.KEPT < now,
            )
            + self._prune(
                credentials.CERT_REVOCATIONS, lambda row: row.revoked_at + credentials.KEPT < now
            )
        )

    def _prune(self, collection: Collection, is_over: Callable[[Any], bool]) -> int:
        records = self._records(Meta(actor="timer"))
        after, count = "", 0
        for _ in range(PRUNED_MAX // PAGE):
            page = self._reads.range(collection, after=after, limit=PAGE)
            for found in page:
                if is_over(found.row):
                    records.delete(collection.name, found.id)
                    count += 1
            if len(page) < PAGE:
                break
            after = page[-1].id
        return count


decoders.build(agent_sessions.KeyStanding)


def _asked(token: credentials.EnrollmentToken) -> tuple[object, ...]:
    """Return the members that must be equal in a repeat of the request."""
    return token.host_id, token.labels, bool(token.replaces), token.reason


def _check_proof(public_key: str, proof: str, message: bytes) -> None:
    """Raises: BadProof, InvalidInput."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    except ValueError:
        raise InvalidInput("a public key is 64 hexadecimal digits", field="public_key") from None
    try:
        key.verify(bytes.fromhex(proof), message)
    except (InvalidSignature, ValueError):
        raise BadProof(UNPROVED) from None


# The y coordinates of all points of small order, in each encoding, without the sign bit.
_SMALL_ORDER: Final = frozenset(
    map(
        bytes.fromhex,
        (
            "00" * 32,
            "01" + "00" * 31,
            "ec" + "ff" * 30 + "7f",
            "ed" + "ff" * 30 + "7f",  # 0 again, plus the prime
            "ee" + "ff" * 30 + "7f",  # 1 again, plus the prime
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        ),
    )
)


def _check_order(public_key: str) -> None:
    """Refuse a key with which one signature matches many messages. Raises: InvalidInput."""
    try:
        number = int.from_bytes(bytes.fromhex(public_key), "little") & ~(1 << 255)
    except ValueError:
        return  # not a key: its proof is refused later
    if number.to_bytes(32, "little") in _SMALL_ORDER:
        raise InvalidInput("the public key is a point of small order", field="public_key")
