"""The settings of an installation, read from a file, the environment and flags, and checked.

defaults  ◀─  TOML file  ◀─  TIDEGATE_<NAME>  ◀─  flags            the later wins
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tidegate import decoders, errors, value_faults

PREFIX = "TIDEGATE_"
PORT_DEFAULT = 8420
FILE_BYTES_MAX = 256 * 1024

# The facts of hosts that an operator can allow as labels. agent_version is not one of them: while
# all agents are updated, hosts would move between channels for hours.
FACT_KEYS = ("arch", "kernel", "os", "os_version")

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
ContentBytes = Annotated[int, msgspec.Meta(ge=1, le=2**40)]


class InvalidSetting(errors.Invalid):
    """A setting is unknown, or its value is not valid."""

    code = "invalid_setting"


class TargetSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target that the outbox delivers one operation to.

    The string below a member is its entry in docs/reference/settings.md.
    """

    kind: Literal["webhook", "command", "file"]
    """What the target is: an HTTP endpoint, a program, or a directory of files."""
    url: str = ""
    """Of a webhook: where requests go. It is https and a public address, or its exact
    `host:port` is in `allowed`.
    """
    secret_file: str = ""
    """Of a webhook: the file with the secret that signs requests, mode 0600. The secret is
    `whsec_` and base64 of 24 to 64 bytes, as in Standard Webhooks. To rotate it, put the new secret
    before the previous one, each on its line. Then requests have both signatures.
    """
    allowed: tuple[str, ...] = ()
    """Of a webhook: the exact `host:port` texts that may be private addresses or use plain http."""
    observable: bool = False
    """Of a webhook: whether the receiver answers `dev.tidegate.state.requested.v1` with the
    current state, so that it can be compared.
    """
    program: tuple[str, ...] = ()
    """Of a command: the program and its arguments. It is started without a shell."""
    observing: tuple[str, ...] = ()
    """Of a command: the program that prints the current state, so that it can be compared."""
    directory: str = ""
    """Of a file target: the directory that gets one file per channel and operation."""


class NotifySetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the machine that sends notifications reaches their receivers."""

    allowed: tuple[str, ...] = ()
    """The exact `host:port` texts of receivers that may have private addresses or use plain
    http.
    """
    smtp_host: str = ""
    """The mail server. Without it there is no mail."""
    smtp_port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    """The port of the mail server."""
    smtp_tls: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection to the mail server is secured."""
    smtp_from: str = "tidegate@localhost"
    """The address that mails come from."""
    smtp_user: str = ""
    """The user at the mail server. Without one the sender does not log in."""
    smtp_password_file: str = ""
    """The file with the password of that user."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may choose. Every other limit is a constant in the module that checks it."""

    data: str  # the directory that holds everything, mode 0700
    store: str = ""  # the URL of the log; empty: SQLite in the data directory
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = PORT_DEFAULT  # 0: any free port
    public_url: str = ""  # as browsers see it; https:// makes cookies Secure
    host_names: str = ""  # further names that clients use, separated by commas
    behind_proxy: bool = False  # a trusted proxy terminates TLS and names the client
    trusted_proxies: str = "127.0.0.1,::1"  # the addresses and networks of such proxies
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16  # requests handled at the same time
    reads_per_second: Count = 200  # per principal
    writes_per_second: Count = 50
    agent_requests_per_second: Count = 100  # per host: ten times what a busy agent sends
    sign_ins_per_minute: Count = 5  # failed ones, per name and client address
    connections_per_address: Count = 2_000  # more than the hosts behind one NAT
    file_bytes_max: ContentBytes = 32 * 1024 * 1024  # of one file that is stored here
    revision_bytes_max: ContentBytes = 32 * 1024 * 1024  # of a revision's files stored here
    revision_files_max: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 10_000
    references_bytes_max: ContentBytes = 1024 * 1024 * 1024  # of a revision's files elsewhere
    fast_path: bool = True  # handle simple requests of agents right at the socket
    worker_metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0  # on loopback; 0: none
    worker: bool = True  # ``serve`` runs the worker; False: ``tidegate worker`` runs it
    fact_labels: str = ""  # facts of hosts that selectors may use: arch,os, or empty: none
    archive: str = ""  # a directory for a mirror of the log; empty: none
    targets: dict[str, TargetSetting] = {}  # the key is the operation
    notify: NotifySetting = NotifySetting()

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:///{Path(self.data).absolute() / 'tidegate.db'}"

    @property
    def allowed_facts(self) -> tuple[str, ...]:
        """The facts of hosts that become labels named `fact/…`."""
        return tuple(sorted({key.strip() for key in self.fact_labels.split(",") if key.strip()}))

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of proxies whose X-Forwarded-For is used; none without ``behind_proxy``."""
        return _parse_networks(self.trusted_proxies) if self.behind_proxy else ()

    @property
    def is_secure(self) -> bool:
        return self.public_url.startswith("https://")


FILE_ONLY = frozenset({"targets", "notify"})  # tables: not settable by flag or variable
NAMES = tuple(item.name for item in msgspec.structs.fields(Settings))
_TYPES = {item.name: item.type for item in msgspec.structs.fields(Settings)}
decoders.build(Settings)


def load(
    flags: Mapping[str, Any], environ: Mapping[str, str], file: str | Path | None = None
) -> Settings:
    """Read and check the settings. A flag that is None was not given.

    Raises:
        InvalidSetting: names the setting, what was found and what is allowed.
    """
    found: dict[str, Any] = {} if file is None else _read(Path(file))
    for name in NAMES:
        text = environ.get(PREFIX + name.upper())
        if text is not None:
            found[name] = _from_text(name, text)
    found.update({name: value for name, value in flags.items() if value is not None})
    return check_settings(found)


def check_settings(found: Mapping[str, Any]) -> Settings:
    """Convert and check settings that were read. Raises: InvalidSetting."""
    if "data" not in found:
        raise InvalidSetting(
            f"settings lack data, the data directory: say --data DIR, or set {PREFIX}DATA",
            setting="data",
        )
    try:
        settings = decoders.convert(dict(found), Settings)
    except msgspec.ValidationError as error:
        fault = value_faults.explain_member(error, found, _TYPES)
        known = f"; known are {', '.join(NAMES)}" if "unknown" in fault else ""
        raise InvalidSetting(f"settings: {fault}{known}") from None
    loopback = settings.host in ("127.0.0.1", "::1", "localhost")
    if not (loopback or settings.is_secure or settings.behind_proxy):
        raise InvalidSetting(
            f"host {settings.host!r} accepts connections from other machines: set public_url="
            "https://… with TLS, or behind_proxy=true if a trusted proxy terminates TLS",
            setting="host",
        )
    if settings.public_url and not re.fullmatch(r"https?://[^/\s?#]+", settings.public_url):
        raise InvalidSetting(
            f"public_url is scheme and host, found {settings.public_url!r}", setting="public_url"
        )
    _check_proxies(settings.trusted_proxies)
    for key in settings.allowed_facts:
        if key not in FACT_KEYS:
            raise InvalidSetting(
                f"fact_labels has {key[:80]!r}; allowed are {', '.join(FACT_KEYS)}",
                setting="fact_labels",
            )
    return settings


def _parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Raises: ValueError: one is not an address or a network."""
    return tuple(ip_network(part.strip()) for part in text.split(","))


def _check_proxies(text: str) -> None:
    """Raises: InvalidSetting."""
    try:
        found = _parse_networks(text)
    except ValueError as error:
        raise InvalidSetting(
            f"trusted_proxies is addresses and networks, separated by commas; {error}",
            setting="trusted_proxies",
        ) from None
    if any(network.prefixlen == 0 for network in found):
        raise InvalidSetting(
            f"trusted_proxies is {text!r}, which is every address: any client could then claim"
            " another's; name only the proxies",
            setting="trusted_proxies",
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        if len(content) > FILE_BYTES_MAX:
            raise InvalidSetting(f"{path.name} has more than {FILE_BYTES_MAX} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise InvalidSetting(f"{path.name} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path.name} is not TOML: {error}") from None


def _from_text(name: str, text: str) -> Any:
    try:
        return decoders.convert(text, _TYPES[name], strict=False)
    except msgspec.ValidationError as error:
        fault = value_faults.explain(str(error), text, _TYPES[name])
        raise InvalidSetting(f"{PREFIX}{name.upper()} {fault}", setting=name) from None
