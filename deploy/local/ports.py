"""Who holds a port."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"


def taken(host: str, port: int) -> bool:
    """Whether a new listener would be refused. Raises OSError when the host is not an address of this machine."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    try:
        socket.create_server(address, family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return True
        raise
    return False


def holder(port: int) -> str:
    """The process that listens there, in words."""
    sockets = _listening_inodes(port)
    for folder in Path("/proc").glob("[0-9]*"):
        if any(link in sockets for link in _open_files(folder)):
            return f"process {folder.name} ({(folder / 'comm').read_text().strip()})"
    return "a process of another user" if sockets else "another process"


def _open_files(process: Path) -> Iterator[str]:
    """What its descriptors point at; nothing where it is another user's."""
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed since
                yield str(descriptor.readlink())


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    return inodes
