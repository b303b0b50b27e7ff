"""Install the agent as a systemd service: write its settings and unit; start nothing.

    as root   /etc/tidegate/agent.toml          /etc/systemd/system/tidegate-agent.service
    --user    ~/.config/tidegate/agent.toml     ~/.config/systemd/user/tidegate-agent.service

Existing settings are kept. The unit is rewritten when it would differ, unless another program or
person wrote it. Its user and additional directories are read back from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec import Struct, structs

from tidegate.agent.config import AgentSettings, load
from tidegate.agent.errors import InstallRefused

MARK: Final = "# Written by `tidegate agent install`."
UNIT: Final = "tidegate-agent.service"
ROOT_USER: Final = "root"
_FURTHER: Final = "# Of --writable:"  # the line after it is read back

_SANDBOX: Final = """\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""
# systemd of a user cannot create the mounts that the other options need.
_USER_SANDBOX: Final = """\
NoNewPrivileges=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
"""


class InstallPlaces(Struct, frozen=True, kw_only=True):
    """The paths of settings, token, state and unit."""

    config: Path
    token: Path
    state: Path
    unit: Path
    is_user: bool = False


class InstallRequest(Struct, frozen=True, kw_only=True):
    """The options of an installation. ``server`` and ``channels`` are for new settings."""

    program: tuple[str, ...]  # how the agent is started, with a full path
    places: InstallPlaces
    server: str = ""
    channels: tuple[tuple[str, str], ...] = ()  # name, root of the driver symlink
    # Additional directories for the programs that the agent starts. Empty: those of the existing
    # unit, if any. One empty path: none.
    writable: tuple[str, ...] = ()
    # A user of this machine. Empty: the user of the existing unit, or root; with --user yourself.
    run_as: str = ""


class InstallFile(Struct, frozen=True, kw_only=True):
    """A file to write or keep."""

    path: Path
    content: str
    mode: int
    change: str  # "create", "replace" or "keep"


class InstallPlan(Struct, frozen=True, kw_only=True):
    """The files to write, and the commands that the operator runs next."""

    files: tuple[InstallFile, ...]
    next: tuple[str, ...]
    kept: tuple[str, ...] = ()  # options taken from the existing unit


def system_places() -> InstallPlaces:
    """Paths for the whole machine; writing them needs root."""
    return InstallPlaces(
        config=Path("/etc/tidegate/agent.toml"),
        token=Path("/etc/tidegate/agent.token"),
        state=Path("/var/lib/tidegate-agent"),
        unit=Path("/etc/systemd/system") / UNIT,
    )


def user_places(home: Path) -> InstallPlaces:
    """Paths for one user."""
    return InstallPlaces(
        config=home / ".config/tidegate/agent.toml",
        token=home / ".config/tidegate/agent.token",
        state=home / ".local/state/tidegate-agent",
        unit=home / ".config/systemd/user" / UNIT,
        is_user=True,
    )


def plan_install(request: InstallRequest) -> InstallPlan:
    """Plan the files to write and the commands to run next. Writes nothing.

    Raises:
        InstallRefused: an option is missing, or a unit exists that this command did not write.
        InvalidAgentSetting: the existing settings are invalid.
    """
    places = request.places
    if places.config.exists():
        config = InstallFile(
            path=places.config, content=places.config.read_text(), mode=0o644, change="keep"
        )
        settings: AgentSettings | None = load(places.config)
    else:
        config = InstallFile(
            path=places.config, content=_render_settings(request), mode=0o644, change="create"
        )
        settings = None
    roots = _roots(request, settings)
    whole, kept = _fill_from_unit(request)
    unit = _plan_unit(places.unit, render_unit(whole, roots, settings))
    steps = _next_commands(whole, roots, settings)
    return InstallPlan(files=(config, unit), next=steps, kept=kept)


def apply_install(plan: InstallPlan) -> None:
    """Write the new and changed files of a plan. Raises: InstallRefused."""
    for file in plan.files:
        if file.change == "keep":
            continue
        try:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            partial = file.path.with_name(file.path.name + ".partial")
            partial.write_text(file.content)
            partial.chmod(file.mode)
            partial.replace(file.path)
        except OSError as error:
            raise InstallRefused(
                f"{file.path} cannot be written: {error.strerror}; run it as root, or with --user"
            ) from None


def render_unit(
    request: InstallRequest, roots: Sequence[str], settings: AgentSettings | None
) -> str:
    """Render the unit; its sandbox gives the agent only what it needs."""
    places = request.places
    start = (*request.program, "--config", str(places.config), "--token-file", str(places.token))
    lines = [
        MARK,
        "# Run it again after you change the settings: it keeps your options.",
        "[Unit]",
        "Description=Tidegate agent",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(map(_to_argument, start))}",
        "# TERM lets a switch finish; the next start resumes from the journal.",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=30",
        "Restart=always",
        "RestartSec=2",
        "# 2: a setting is wrong; a restart would not help.",
        "RestartPreventExitStatus=2",
        "UMask=0022",
    ]
    if places.is_user:
        return "\n".join((*lines, "", _USER_SANDBOX, "[Install]", "WantedBy=default.target", ""))
    if _other_user(request):
        lines.append(f"User={_quote(request.run_as)}")
    state = _own_state(request, settings)
    if state is None:
        lines += [f"StateDirectory={places.state.name}", "StateDirectoryMode=0700"]
    writable = roots if state is None else [state, *roots]
    if writable:
        lines.append(f"ReadWritePaths={_join(writable)}")
    if any(request.writable):
        lines += [_FURTHER, f"ReadWritePaths={_join(filter(None, request.writable))}"]
    return "\n".join((*lines, "", _SANDBOX, "[Install]", "WantedBy=multi-user.target", ""))


def _fill_from_unit(request: InstallRequest) -> tuple[InstallRequest, tuple[str, ...]]:
    """Fill missing options from the existing unit; also return a line for each."""
    user, writable = _read_unit(request.places)
    kept = []
    if user and not request.run_as:
        request = structs.replace(request, run_as=user)
        kept.append(f"--run-as {user}, as the unit has it; --run-as {ROOT_USER} changes it")
    if writable and not request.writable:
        request = structs.replace(request, writable=writable)
        kept += [
            f"--writable {quote(path)}, as the unit has it; --writable '' changes it"
            for path in writable
        ]
    return request, tuple(kept)


def _read_unit(places: InstallPlaces) -> tuple[str, tuple[str, ...]]:
    """Read the user and additional directories of the existing unit, if we wrote it."""
    text = places.unit.read_text() if places.unit.exists() else ""
    if places.is_user or not text.startswith(MARK):
        return "", ()
    user = re.search(r"^User=(.*)$", text, re.MULTILINE)
    further = re.search(rf"^{_FURTHER}\nReadWritePaths=(.*)$", text, re.MULTILINE)
    return (
        next(_split(user[1]), "") if user else "",
        tuple(_split(further[1])) if further else (),
    )


def _other_user(request: InstallRequest) -> str:
    """The user of the service; empty: root."""
    return "" if request.run_as == ROOT_USER else request.run_as


def _own_state(request: InstallRequest, settings: AgentSettings | None) -> str | None:
    """The state directory of the settings; None: the default, which systemd creates."""
    usual = str(request.places.state)
    return None if settings is None or settings.state == usual else settings.state


def _render_settings(request: InstallRequest) -> str:
    """Raises: InstallRefused: the server or the channels are missing."""
    flags = {"--server URL": request.server, "--channel NAME=DIR": request.channels}
    missing = [flag for flag, given in flags.items() if not given]
    if missing:
        raise InstallRefused(
            f"there is no {request.places.config} yet; to write it, say {' and '.join(missing)}"
        )
    lines = [
        "# Settings of the Tidegate agent: docs/agent.md lists all of them.",
        f"server = {_toml(request.server)}",
        f"state = {_toml(str(request.places.state))}",
    ]
    for name, root in request.channels:
        lines += ["", f"[channels.{_toml(name)}]", 'driver = "symlink"', f"root = {_toml(root)}"]
        lines.append("# Without probes nothing is checked after a switch: docs/agent.md, Probes.")
        lines.append('# probes = "/etc/tidegate/probes.toml"')
    return "\n".join((*lines, ""))


def _roots(request: InstallRequest, settings: AgentSettings | None) -> list[str]:
    """The directories that the symlink driver writes to."""
    if settings is None:
        return [root for _, root in request.channels]
    return [channel.root for channel in settings.channels.values() if channel.root]


def _plan_unit(path: Path, content: str) -> InstallFile:
    """Raises: InstallRefused."""
    change = "create"
    if path.exists():
        found = path.read_text()
        if not found.startswith(MARK):
            raise InstallRefused(
                f"{path} was not written by this command; move it away to install another"
            )
        change = "keep" if found == content else "replace"
    return InstallFile(path=path, content=content, mode=0o644, change=change)


def _next_commands(
    request: InstallRequest, roots: Sequence[str], settings: AgentSettings | None
) -> tuple[str, ...]:
    """The commands to run next. systemd does not start a unit if a directory is missing."""
    places, user = request.places, _other_user(request)
    owner = f" -o {quote(user)}" if user else ""
    make = f"install -d{owner}" if user else "mkdir -p"
    further = () if places.is_user else filter(None, request.writable)
    directories = dict.fromkeys((*roots, *further))
    state = None if places.is_user else _own_state(request, settings)
    token = quote(str(places.token))
    systemctl = "systemctl --user" if places.is_user else "systemctl"
    journal = "journalctl --user" if places.is_user else "journalctl"
    return (
        *(f"{make} {quote(path)}" for path in directories if not Path(path).is_dir()),
        *(
            f"install -d{owner} -m 700 {quote(path)}"
            for path in (state,)
            if path is not None and not Path(path).is_dir()
        ),
        f"install{owner} -m 600 TOKEN-FILE {token}   # from: tidegate host enroll NAME",
        f"{systemctl} daemon-reload",
        f"{systemctl} enable --now {UNIT}",
        f"{journal} -u {UNIT} -f",
    )


def _to_argument(word: str) -> str:
    """Quote an argument for ExecStart; systemd expands no variables in it."""
    return _quote(word.replace("$", "$$"))


def _quote(word: str) -> str:
    """Quote a word for a unit; systemd expands no specifiers in it."""
    escaped = word.replace("\\", "\\\\").replace("%", "%%").replace('"', '\\"')
    return f'"{escaped}"' if set(escaped) & set(" \t;'\"") else escaped


def _join(words: Iterable[str]) -> str:
    return " ".join(map(_quote, dict.fromkeys(words)))


def _split(line: str) -> Iterator[str]:
    """Split a line of quoted words; the reverse of ``_join``."""
    for found in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        word = found[2] if found[1] is None else found[1]
        yield re.sub(r"\\(.)", r"\1", word.replace("%%", "%"))


def _toml(text: str) -> str:
    """Write a TOML basic string. Raises: InstallRefused."""
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise InstallRefused(f"{text[:80]!r} has a control character")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def default_places(is_user: bool) -> InstallPlaces:
    """The paths of this user, or of the whole machine."""
    return user_places(Path.home()) if is_user else system_places()
