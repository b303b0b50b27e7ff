"""Check whether a password is allowed, hash it with scrypt, and compare it with a stored hash."""

from __future__ import annotations

import hmac
import secrets as randomness
from functools import cache
from hashlib import scrypt
from threading import BoundedSemaphore

from tidegate import errors
from tidegate.control.operations.common_passwords import is_common

PASSWORD_CHARS_MIN = 12
PASSWORD_CHARS_MAX = 256
PASSWORD_DISTINCT_CHARS_MIN = 5
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**17, 8, 1  # takes 128 MiB and some tenths of a second
STRETCHED_AT_ONCE_MAX = 2  # more would exceed the memory of a small server


class WeakPassword(errors.Invalid):
    """A password must have 12 to 256 characters, and be neither common nor the sign-in name."""

    code = "weak_password"


def check_password(password: str, login: str) -> None:
    """Raises: WeakPassword."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise WeakPassword(
            f"a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters, "
            f"found {len(password)}",
            field="password",
        )
    if password.casefold() == login.casefold():
        raise WeakPassword("the password is the sign-in name", field="password")
    if len(set(password)) < PASSWORD_DISTINCT_CHARS_MIN or is_common(password):
        raise WeakPassword(
            "the password is one that many people use; choose another one", field="password"
        )


@cache
def stand_in() -> str:
    """Return the hash of a random password, to compare with if the user does not exist."""
    return stretch_password(randomness.token_hex(16))


def cost_prefix() -> str:
    """Return the prefix of a hash made with the current costs."""
    return f"{SCRYPT_N}${SCRYPT_R}${SCRYPT_P}$"


def stretch_password(password: str) -> str:
    """Hash a password for storage: costs, salt and scrypt output."""
    salt = randomness.token_bytes(16)
    found = _scrypt(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"{cost_prefix()}{salt.hex()}${found.hex()}"


def is_password(password: str, kept: str) -> bool:
    """Compare with a stored hash, using the costs in it; they may differ from the current ones."""
    *costs, salt, expected = kept.split("$")
    found = _scrypt(password, bytes.fromhex(salt), *map(int, costs))
    return hmac.compare_digest(found.hex(), expected)


_stretching = BoundedSemaphore(STRETCHED_AT_ONCE_MAX)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password.encode(errors="surrogatepass")
    with _stretching:
        return scrypt(text, salt=salt, n=n, r=r, p=p, dklen=32, maxmem=128 * r * (n + p + 2))
