"""The settings as flags, and the commented default that ``serve --print-config`` prints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
import msgspec

from tidegate import config

Command = TypeVar("Command", bound=Callable[..., Any])

LOG: Final = ("data", "store")  # where the log is
EVERY: Final = tuple(name for name in config.NAMES if name not in config.FILE_ONLY)
WORDS: Final[Mapping[str, str]] = {
    "data": "The data directory. It is created with mode 0700.",
    "store": "URL of the database: sqlite:///path, postgresql://… or dynamodb://table?region=…. "
    "Empty: SQLite in the data directory.",
    "host": "The address to listen on. Beyond loopback, terminate TLS in a proxy in front.",
    "port": "The port to listen on. 0: any free port.",
    "public_url": "The URL that browsers use. With https:// cookies are Secure.",
    "host_names": "Further names of this server, separated by commas. It answers under these, the "
    "host of public_url, loopback names, and the address that a request arrived at.",
    "behind_proxy": "A trusted proxy terminates TLS and forwards the client's address.",
    "trusted_proxies": "With behind_proxy: the addresses and networks of the proxies, separated by "
    "commas. Only their X-Forwarded-For is used.",
    "threads": "How many requests are handled at once.",
    "reads_per_second": "Read requests per second of one user or token.",
    "writes_per_second": "Write requests per second of one user or token.",
    "agent_requests_per_second": "Requests per second of one host's agent.",
    "sign_ins_per_minute": "Failed sign-ins per minute, counted per name and client address.",
    "connections_per_address": "Connections from one client address. If many hosts share a NAT, "
    "allow more than there are hosts. Trusted proxies may have more.",
    "file_bytes_max": "Bytes of one file of a revision that the server keeps.",
    "revision_bytes_max": "Bytes of all files of a revision that the server keeps. References do "
    "not count.",
    "revision_files_max": "Files of a revision, with references.",
    "references_bytes_max": "Bytes of all references of a revision, which hosts fetch elsewhere.",
    "fast_path": "Whether simple requests of agents take the fast path.",
    "worker_metrics_port": "The port on 127.0.0.1 where tidegate worker serves metrics. 0: none.",
    "worker": "Whether serve also runs the worker. If not, start tidegate worker too.",
    "fact_labels": "Facts of hosts that selectors may use as fact/…, separated by commas: "
    "arch, kernel, os, os_version. Empty: none. Set it alike on every server.",
    "archive": "A directory for a copy of the log. Empty: no copy.",
    "targets": "The target of each outbox operation. Only in the file.",
    "notify": "What notifications need. Only in the file.",
}
TARGETS: Final = """
# [targets.notify]                # the operation, as a channel's policy names it
# kind = "webhook"                # webhook, command or file
# url = "https://hooks.example.com/deploys"
# secret_file = "webhook-secret"  # whsec_ and base64 of 24 to 64 bytes, mode 0600
# allowed = []                    # exact host:port texts that may be private, or without TLS
# observable = false              # the receiver tells the state when it is asked
#
# [targets.alias]
# kind = "command"
# program = ["deploy-alias"]      # started without a shell
#
# [targets.record]
# kind = "file"
# directory = "effects"
"""
NOTIFY: Final = """
# [notify]
# allowed = []                    # exact host:port texts that may be private, or without TLS
# smtp_host = "mail.example.com"  # without it there is no mail
# smtp_port = 587
# smtp_tls = "starttls"           # starttls, tls or none
# smtp_from = "tidegate@example.com"
# smtp_user = "tidegate"
# smtp_password_file = "smtp-password"
"""


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Add the settings of these names as flags, and ``--config`` for a file of settings.

    Name those that the command uses. File and environment may hold all others, too.
    """

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            flag = f"--{name.replace('_', '-')}"
            command = click.option(flag, name, metavar="VALUE", help=_help(name))(command)
        file = click.option("--config", "file", metavar="FILE", help="A TOML file of settings.")
        return file(command)

    return decorate


def settings_of(file: str | None, flags: Mapping[str, str | None]) -> config.Settings:
    """Load the settings. Flags win over the environment, which wins over the file.

    Raises:
        InvalidSetting.
    """
    given = {
        f"{config.PREFIX}{name.upper()}": text for name, text in flags.items() if text is not None
    }
    return config.load({}, {**os.environ, **given}, file)


def commented_default() -> str:
    """Render a settings file in which every setting is commented out and explained."""
    lines = [
        "# The settings of Tidegate with their defaults.",
        f"# A flag wins over the environment ({config.PREFIX}<NAME>), that over this file.",
        "",
    ]
    for item in msgspec.structs.fields(config.Settings):
        if item.name in config.FILE_ONLY:
            continue
        value = "tidegate-data" if item.required else item.default
        lines += [f"# {WORDS[item.name]}", f"# {item.name} = {json.dumps(value)}", ""]
    tables = f"# {WORDS['targets']}{TARGETS}\n# {WORDS['notify']}{NOTIFY}"
    return "\n".join([*lines, tables])


def _help(name: str) -> str:
    return f"{WORDS[name]} [{config.PREFIX}{name.upper()}]"
