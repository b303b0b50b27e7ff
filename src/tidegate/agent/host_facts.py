"""Facts about this machine for heartbeats: system, kernel, architecture and addresses."""

from __future__ import annotations

import fcntl
import platform
import socket
import struct
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

from tidegate.domain.hosts.protocol import ADDRESSES_MAX, HostFacts

SIOCGIFADDR: Final = 0x8915  # Linux: the IPv4 address of an interface
IPV6_FILE: Final = Path("/proc/net/if_inet6")


def read_host_facts() -> HostFacts:
    """Read the current facts. What cannot be read is empty."""
    release: dict[str, str] = {}
    with suppress(OSError):
        release = platform.freedesktop_os_release()
    return HostFacts(
        os=(release.get("ID") or platform.system().lower())[:64],
        os_version=release.get("VERSION_ID", "")[:64],
        kernel=platform.release()[:128],
        arch=platform.machine()[:32],
        addresses=_addresses(),
    )


def _addresses() -> tuple[str, ...]:
    """The addresses of this machine that are neither loopback nor link-local."""
    found = {*_ipv4_addresses(), *_ipv6_addresses()}
    usable = [
        address
        for address in map(ip_address, found)
        if not (address.is_loopback or address.is_link_local)
    ]
    usable.sort(key=lambda address: (address.version, int(address)))
    return tuple(map(str, usable[:ADDRESSES_MAX]))


def _ipv4_addresses() -> list[str]:
    found = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with suppress(OSError):  # the interface has no IPv4 address
                answer = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6_addresses() -> list[str]:
    try:
        lines = IPV6_FILE.read_text().splitlines()
    except OSError:
        return []
    return [str(IPv6Address(bytes.fromhex(line.split()[0]))) for line in lines if line.strip()]
