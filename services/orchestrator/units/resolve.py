"""From the addresses a user names to those to connect to."""

from __future__ import annotations

import asyncio
import socket


async def resolve(addresses: str) -> set[str]:
    """ "a:1, b:2" -> every "ip:port" behind them. A name that does not resolve now stands for none."""
    found: set[str] = set()
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        found |= await _resolve_host(host.strip("[]"), port)
    return found


async def _resolve_host(host: str, port: str) -> set[str]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except socket.gaierror:
        return set()
    return {_join(info[0], str(info[4][0]), port) for info in infos}


def _join(family: int, ip: str, port: str) -> str:
    return f"[{ip}]:{port}" if family == socket.AF_INET6 else f"{ip}:{port}"
