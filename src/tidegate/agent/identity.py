"""The identity of this host: its private key, which never leaves it, and its registration.

<state>/key             Ed25519, 64 hexadecimal digits, mode 0600
<state>/identity.json   the host's id, the log that it belongs to, the keys of its manifests
<state>/lock            held while an agent runs: there is one per host
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tidegate import decoders
from tidegate.agent import durable_files, errors as agent_errors
from tidegate.domain.hosts.protocol import EnrollmentAnswer

KEY: Final = "key"
IDENTITY: Final = "identity.json"


class HostKey:
    """The host's private key: it signs and cannot be read."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def proof(self, message: bytes) -> str:
        """The signature of a message, in hexadecimal digits."""
        return self._key.sign(message).hex()


@contextmanager
def lock_state_directory(state: Path) -> Iterator[None]:
    """Create the state directory if it is missing, and lock it for this process.

    Raises:
        StateHeld: another agent uses it. InvalidAgentSetting: other users may read it.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if state.stat().st_mode & 0o077:
        raise agent_errors.InvalidAgentSetting(
            f"{state} holds the host's key: chmod 700 it", setting="state"
        )
    lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise agent_errors.StateHeld(f"another agent runs on {state}") from None
        yield
    finally:
        os.close(lock)


def load_or_create_key(state: Path) -> HostKey:
    """Load the host's key; the first call creates it. Raises: InvalidAgentSetting."""
    path = state / KEY
    if not path.exists():
        made = Ed25519PrivateKey.generate().private_bytes_raw().hex()
        durable_files.replace_file(path, made.encode())
    try:
        return HostKey(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text())))
    except ValueError:
        raise agent_errors.InvalidAgentSetting(
            f"{path} is no key; remove it and enroll again", setting="state"
        ) from None


def save_enrollment(state: Path, enrolled: EnrollmentAnswer) -> None:
    """Save the server's response to the enrollment."""
    durable_files.replace_file(state / IDENTITY, msgspec.json.encode(enrolled))


_enrolled = decoders.build(EnrollmentAnswer)


def load_enrollment(state: Path) -> EnrollmentAnswer | None:
    """Load the enrollment; None: there is none. Raises: NotEnrolled: it cannot be read."""
    try:
        return _enrolled.decode((state / IDENTITY).read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise agent_errors.NotEnrolled(
            f"{state / IDENTITY} cannot be read: {error}; remove it and enroll again"
        ) from None
