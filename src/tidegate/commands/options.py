"""The settings as flags, and the commented default that ``serve --print-config`` prints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
import msgspec

from tidegate import config
from tidegate.config import NAMES, PREFIX, Settings

Command = TypeVar("Command", bound=Callable[..., Any])

WORDS: Final[Mapping[str, str]] = {
    "data": "The directory that holds everything; it is made with mode 0700.",
    "store": "URL of the log: sqlite:///path, postgresql://…, dynamodb://table?region=…; "
    "empty: SQLite in the data directory.",
    "host": "The address to listen on; beyond loopback only with TLS in front.",
    "port": "The port to listen on; 0: any that is free.",
    "public_url": "How browsers reach the server; https:// makes cookies Secure.",
    "behind_proxy": "A trusted proxy ends TLS and names the client.",
    "threads": "Requests that are decided at once.",
    "reads_per_second": "Reads of one principal.",
    "writes_per_second": "Writes of one principal.",
    "sign_ins_per_minute": "Failed sign-ins, per name and client address.",
    "connections_per_address": "Connections of one client address; set it to more than the hosts "
    "behind one NAT. It is not used with behind_proxy.",
    "fast_path": "Whether plain requests of agents are answered at the socket, with less work.",
    "worker": "Whether serve works, too; else start tidegate worker beside it.",
    "archive": "A directory for a mirror of the log; empty: none.",
    "targets": "Where the work of each operation goes; in the file only.",
}
TARGETS: Final = """
# [targets.notify]                # the operation, as a channel's policy names it
# kind = "webhook"                # webhook, command or file
# url = "https://hooks.example.com/deploys"
# secret_file = "webhook-secret"  # 16 bytes at least, mode 0600
# allowed = []                    # exact host:port texts that may be private, or without TLS
# observable = false              # a GET of the URL tells how it stands
#
# [targets.alias]
# kind = "command"
# program = ["deploy-alias"]      # started without a shell
#
# [targets.record]
# kind = "file"
# directory = "effects"
"""


def with_settings(command: Command) -> Command:
    """Every setting as a flag, and ``--config`` for a file of them."""
    for name in reversed(NAMES):
        if name != "targets":
            flag = f"--{name.replace('_', '-')}"
            command = click.option(flag, name, metavar="VALUE", help=_help(name))(command)
    file = click.option("--config", "file", metavar="FILE", help="A TOML file of settings.")
    return file(command)


def settings_of(file: str | None, flags: Mapping[str, str | None]) -> Settings:
    """What was given: flags before the environment before the file. Raises: InvalidSetting."""
    given = {f"{PREFIX}{name.upper()}": text for name, text in flags.items() if text is not None}
    return config.load({}, {**os.environ, **given}, file)


def commented_default() -> str:
    """A file of settings that changes nothing, and says what each is for."""
    lines = [
        "# The settings of Tidegate, as they are if nothing is said.",
        f"# A flag wins over the environment ({PREFIX}<NAME>), that over this file.",
        "",
    ]
    for item in msgspec.structs.fields(Settings):
        if item.name == "targets":
            continue
        value = "tidegate-data" if item.required else item.default
        lines += [f"# {WORDS[item.name]}", f"# {item.name} = {json.dumps(value)}", ""]
    return "\n".join([*lines, f"# {WORDS['targets']}{TARGETS}"])


def _help(name: str) -> str:
    return f"{WORDS[name]} [{PREFIX}{name.upper()}]"
