"""From the addresses a user names to those to connect to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

HostPort = tuple[str, int]
Find = Callable[[], Awaitable[set[str]]]
"""Every "ip:port" at which there may be replicas of a unit now."""


def resolver(addresses: str) -> Find:
    """Of "host:port", or several, comma-separated. Raises ValueError that names the one which is no host:port."""
    names = parse_addresses(addresses)
    return lambda: resolve(names)


def parse_addresses(addresses: str) -> tuple[HostPort, ...]:
    """ "a:1, b:2" as pairs. Raises ValueError that names the one which is no host:port."""
    return tuple(_parse(address.strip()) for address in addresses.split(","))


def _parse(address: str) -> HostPort:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address {address!r}: must be host:port")
    return host.strip("[]"), int(port)


async def resolve(names: Iterable[HostPort]) -> set[str]:
    """Every "ip:port" behind the names, which are asked for at once. One that does not resolve now stands for none."""
    return set().union(*await asyncio.gather(*(_resolve_host(host, port) for host, port in names)))


async def _resolve_host(host: str, port: int) -> set[str]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a label longer than names may have
        return set()
    return {_join(info[0], str(info[4][0]), port) for info in infos}


def _join(family: int, ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if family == socket.AF_INET6 else f"{ip}:{port}"
