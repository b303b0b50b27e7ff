"""The agent's settings: one TOML file. Every member is checked at the start.

server = "https://tidegate.example"
state = "/var/lib/tidegate-agent"

[channels.web-stable]
driver = "symlink"
root = "/srv/web"
probes = "/etc/tidegate/web-probes.toml"
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from tidegate import decoders
from tidegate.agent.errors import InvalidAgentSetting
from tidegate.domain.hosts.protocol import WAIT_SECONDS_MAX

FILE_BYTES_MAX = 256 * 1024
CHANNELS_MAX = 64
REFERENCE_DIRECTORIES_MAX = 16
REFERENCE_HOSTS_MAX = 64

DriverName = Literal["symlink", "command", "fake"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3_600)]
_HOST_AND_PORT = re.compile(r"([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\]):[0-9]{1,5}")
_SERVER = re.compile(r"https?://[^/\s?#]+")
_LOOPBACK = re.compile(r"http://(127\.0\.0\.1|\[::1\]|localhost)(:\d+)?")


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this host runs the releases of a channel.

    The string below a member is its entry in docs/reference/settings.md.
    """

    driver: DriverName
    """How the agent switches to a release. `fake` only pretends to, for demonstrations."""
    root: str = ""
    """Of the driver `symlink`: the directory that holds `releases/` and the link `current`."""
    command: tuple[str, ...] = ()
    """Of the driver `command`: the program and its arguments. It is started without a shell."""
    timeout_seconds: Seconds = 300.0
    """Of the driver `command`: how long the program may run. After that it is killed and the
    switch has failed.
    """
    probes: str = ""
    """The TOML or JSON file of the channel's probes. Empty: the channel has no probes."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one agent. The times of a rollout come with its orders, not from here."""

    server: str
    """Where the server is: scheme and host. Plain http is allowed on loopback only."""
    state: str
    """The directory of the agent's key, identity, journal and versions of channel
    manifests. The agent makes it with mode 0700; the flag `--state` wins over it.
    """
    channels: dict[str, ChannelSettings]
    """The channels that this host runs, by name. The agent rejects an order of any other
    channel.
    """
    host: str = ""
    """The name that this host enrolls under with a join token. Empty: the machine's host name."""
    poll_seconds: Annotated[int, msgspec.Meta(ge=1, le=WAIT_SECONDS_MAX)] = 30
    """How long the server may hold a poll for orders open."""
    tick_seconds: Seconds = 5.0
    """How often the agent checks what is due: probes, the end of a soak, a failure that lasts too
    long.
    """
    heartbeat_seconds: Seconds = 60.0
    """How often the agent reports what the host runs. It also reports after each switch."""
    back_off_seconds_max: Seconds = 60.0
    """The longest wait between attempts while the server does not answer. Waits double from 1
    second, with jitter.
    """
    reference_directories: tuple[str, ...] = ()
    """The directories that `file:` references of a release may point to. Empty: none."""
    reference_hosts: tuple[str, ...] = ()
    """Each `host:port` that references of a release may be fetched from although its address is
    not public, such as a mirror in your own network.
    """


decoders.build(AgentSettings)


def load(file: Path, **flags: str | None) -> AgentSettings:
    """Load the settings of a file; flags win over its members.

    Raises:
        InvalidAgentSetting: names the member, what was found and what is allowed.
    """
    found = _read(file)
    found.update({name: value for name, value in flags.items() if value is not None})
    _check_members(found)
    try:
        settings = decoders.convert(found, AgentSettings)
    except msgspec.ValidationError as error:
        raise InvalidAgentSetting(f"{file.name}: {error}") from None
    _check(settings)
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidAgentSetting(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidAgentSetting(f"{file.name} has more than {FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidAgentSetting(f"{file.name} is not TOML: {error}") from None


def _check_members(found: dict[str, Any]) -> None:
    """Refuse unknown settings and drivers. Missing ones are found by the conversion."""
    _demand_known("", found, AgentSettings)
    channels = found.get("channels")
    for name, channel in channels.items() if isinstance(channels, dict) else ():
        if isinstance(channel, dict):
            _demand_known(f"channels.{name}.", channel, ChannelSettings)
            driver = str(channel.get("driver", ""))
            if driver not in get_args(DriverName):
                allowed = ", ".join(get_args(DriverName))
                raise _wrong(f"channels.{name}.driver", driver, f"one of {allowed}")


def _demand_known(where: str, found: dict[str, Any], model: type[msgspec.Struct]) -> None:
    known = model.__struct_fields__
    for name in found:
        if name not in known:
            raise InvalidAgentSetting(
                f"there is no setting {where}{name[:200]}; known are {', '.join(known)}"
            )


def _check(settings: AgentSettings) -> None:
    if not _SERVER.fullmatch(settings.server):
        raise _wrong("server", settings.server, "scheme and host, as https://tidegate.example")
    if settings.server.startswith("http:") and not _LOOPBACK.fullmatch(settings.server):
        raise _wrong("server", settings.server, "https beyond loopback")
    if not Path(settings.state).is_absolute():
        raise _wrong("state", settings.state, "an absolute path")
    if not 1 <= len(settings.channels) <= CHANNELS_MAX:
        raise _wrong("channels", str(len(settings.channels)), f"1 to {CHANNELS_MAX} of them")
    for directory in settings.reference_directories:
        if not Path(directory).is_absolute() or Path(directory) == Path("/"):
            raise _wrong("reference_directories", directory, "absolute paths, / not among them")
    if len(settings.reference_directories) > REFERENCE_DIRECTORIES_MAX:
        count = str(len(settings.reference_directories))
        raise _wrong("reference_directories", count, f"at most {REFERENCE_DIRECTORIES_MAX}")
    for host in settings.reference_hosts:
        if not _HOST_AND_PORT.fullmatch(host):
            raise _wrong("reference_hosts", host, "host:port, as mirror.internal:443")
    if len(settings.reference_hosts) > REFERENCE_HOSTS_MAX:
        count = str(len(settings.reference_hosts))
        raise _wrong("reference_hosts", count, f"at most {REFERENCE_HOSTS_MAX}")
    for name, channel in settings.channels.items():
        _check_channel(f"channels.{name}", channel)


def _check_channel(name: str, channel: ChannelSettings) -> None:
    if channel.driver == "symlink" and not Path(channel.root).is_absolute():
        raise _wrong(f"{name}.root", channel.root, "an absolute path")
    if channel.driver == "command" and not (
        channel.command and Path(channel.command[0]).is_absolute()
    ):
        raise _wrong(f"{name}.command", str(channel.command), "a list that begins with a full path")
    if channel.probes and not Path(channel.probes).is_absolute():
        raise _wrong(f"{name}.probes", channel.probes, "an absolute path")


def _wrong(name: str, found: str, allowed: str) -> InvalidAgentSetting:
    return InvalidAgentSetting(f"{name} is {found[:200]!r}; allowed is {allowed}", setting=name)
