"""API tokens: make them, store their hashes, and find the token that a request sent."""

from __future__ import annotations

import hmac
import secrets as randomness
from collections.abc import Callable
from contextlib import suppress

from tidegate import errors
from tidegate.clock import Clock
from tidegate.control.queries.reads import Reads
from tidegate.control.secrets import hash_secret
from tidegate.domain.access import erasable_rows, refusals, rows, slices
from tidegate.kernel.model import Key, Meta
from tidegate.kernel.records.records import Records

TOKEN_PREFIX = "tg"


class ApiTokens:
    """The API tokens of one installation."""

    def __init__(self, reads: Reads, records: Callable[[Meta], Records], clock: Clock) -> None:
        self._reads = reads
        self._records = records
        self._clock = clock

    def keep_token(self, token_id: str, meta: Meta) -> str:
        """Make a token that gives no access yet, and store its hash. Raises: TokenExists."""
        secret = randomness.token_urlsafe(32)
        kept = erasable_rows.TokenSecret(token_id, hash_secret(secret))
        records = self._records(meta)
        try:
            records.create(erasable_rows.TOKEN_SECRETS.name, token_id, kept)
        except errors.ConditionFailed:
            self._replace_secret(records, kept)
        return f"{TOKEN_PREFIX}_{token_id}_{secret}"

    def _replace_secret(self, records: Records, kept: erasable_rows.TokenSecret) -> None:
        """Replace the hash of a token that was never created, because its request failed halfway
        and the hash could not be deleted.

        Raises:
            TokenExists: it was created, or another copy of the request is about to.
        """
        found = records.find(erasable_rows.TOKEN_SECRETS.name, kept.token_id)
        if found is None or self.has_token(kept.token_id):
            raise refusals.TokenExists(kept.token_id)
        try:
            placed = records.put(
                erasable_rows.TOKEN_SECRETS.name, kept.token_id, kept, expect=found.version
            )
        except errors.Conflict:
            raise refusals.TokenExists(kept.token_id) from None
        if self.has_token(kept.token_id):  # the other copy completed: its token is the valid one
            records.put(
                erasable_rows.TOKEN_SECRETS.name, kept.token_id, found.value, expect=placed.version
            )
            raise refusals.TokenExists(kept.token_id)

    def has_token(self, token_id: str) -> bool:
        """Whether the token was created."""
        return self._reads.find(rows.token_key(token_id), rows.ApiToken) is not None

    def is_kept(self, token_id: str, token: str) -> bool:
        """Whether the stored hash is that of this token."""
        kept = self._reads.find(
            Key(erasable_rows.TOKEN_SECRETS.name, token_id), erasable_rows.TokenSecret
        )
        secret = token.removeprefix(f"{TOKEN_PREFIX}_{token_id}_")
        return kept is not None and hmac.compare_digest(kept.row.sha256, hash_secret(secret))

    def forget_token(self, token_id: str, meta: Meta) -> None:
        """Delete the hash of a token that was not created. If this fails too, the next request with
        the same idempotency key replaces the hash.
        """
        with suppress(errors.Unavailable, errors.Unknown):
            if not self.has_token(token_id):
                self._records(meta).delete(erasable_rows.TOKEN_SECRETS.name, token_id)

    def find_token(self, text: str) -> rows.ApiToken | None:
        """Return the API token of this text if its secret is right; it may have expired."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        if prefix != TOKEN_PREFIX or not token_id or len(text) > 256 or not text.isascii():
            return None
        if not text.isprintable():
            return None
        token, kept = self._reads.find_all(
            (rows.token_key(token_id), rows.ApiToken),
            (Key(erasable_rows.TOKEN_SECRETS.name, token_id), erasable_rows.TokenSecret),
        )
        if token is None or kept is None:
            return None
        if not hmac.compare_digest(kept.row.sha256, hash_secret(secret)):
            return None
        row: rows.ApiToken = token.row
        return row

    def is_token_valid(self, token: rows.ApiToken, owner: rows.User) -> bool:
        """Whether a token gives access: it is current, and no token that it descends from is
        revoked.
        """
        if not slices.is_current(token, owner, self._clock()):
            return False
        wanted = [(rows.token_key(id), rows.ApiToken) for id in token.ancestors]
        ancestors = self._reads.find_all(*wanted) if wanted else ()
        return all(item is not None and item.row.revoked_at is None for item in ancestors)
