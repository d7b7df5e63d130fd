"""Ports for services that tests start as processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
_A_WORKER = 1000


def _of_this_worker() -> Iterator[int]:
    """Below those that the system gives to outgoing connections, which could have one when its service restarts; and
    none of those of a worker of pytest-xdist beside this one."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = first_outgoing // 2 + worker * _A_WORKER
    return itertools.cycle(random.SystemRandom().sample(range(first, first + _A_WORKER), _A_WORKER))


_PORTS = _of_this_worker()


def free_ports(count: int) -> list[int]:
    """Different ones at every call: a port that was given out may be bound only later."""
    ports: list[int] = []
    for port in itertools.islice(_PORTS, _A_WORKER):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError("no free ports")
