"""Where each service runs, from the same HETSPEC_* variables that the services read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "HETSPEC_"
LOOPBACK = ("127.0.0.1", "localhost")


class LaunchError(Exception):
    """The one line that the user reads."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process: `python -m <name>`, with its environment."""

    name: str
    host: str
    port: int
    env: Mapping[str, str]

    @property
    def address(self) -> str:
        return f"{'127.0.0.1' if self.host in ('0.0.0.0', '::') else self.host}:{self.port}"

    def digest(self, code: str) -> str:
        """Changes when the process would start differently: settings or code."""
        return hashlib.sha256(json.dumps([code, self.host, self.port, dict(self.env)]).encode()).hexdigest()


UNITS = {"weight_store": 7001, "verifier": 7002, "drafter": 7003, "sampler": 7004}


def services(environ: Mapping[str, str]) -> list[Service]:
    """The five, in the order they start. Raises LaunchError when a setting does not name a place on this machine."""
    shared = {name: value for name, value in sorted(environ.items()) if name.startswith(PREFIX)}
    host, port = shared.pop("HETSPEC_HOST", "127.0.0.1"), shared.pop("HETSPEC_PORT", "8000")
    places = {name: _unit_place(name, shared.get(PREFIX + name.upper()), default) for name, default in UNITS.items()}
    places["orchestrator"] = (host, _port("HETSPEC_PORT", port))
    _refuse_shared_ports(places)
    return [
        Service(name, host, port, shared | {"HETSPEC_HOST": host, "HETSPEC_PORT": str(port)})
        for name, (host, port) in places.items()
    ]


def code_digest(root: Path) -> str:
    """Of everything the processes are made of: sources, contracts, pinned requirements."""
    files = [root / "pyproject.toml", *_files(root / "services", "*.py"), *_files(root / "proto", "*.proto")]
    return _digest(file.read_bytes() for file in files)


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))


def _digest(contents: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for content in contents:
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()


def _unit_place(name: str, address: str | None, default: int) -> tuple[str, int]:
    if address is None:
        return "127.0.0.1", default
    setting = PREFIX + name.upper()
    host, _, port = address.rpartition(":")
    if host not in LOOPBACK:
        raise LaunchError(f"{setting} = {address!r}: services start on this machine only, give 127.0.0.1:port")
    return host, _port(setting, port)


def _port(setting: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 65535):
        raise LaunchError(f"{setting}: port {text!r} is not a number from 1 to 65535")
    return int(text)


def _refuse_shared_ports(places: Mapping[str, tuple[str, int]]) -> None:
    taken: dict[int, str] = {}
    for name, (_, port) in places.items():
        if port in taken:
            raise LaunchError(f"port {port} is set for both {taken[port]} and {name}")
        taken[port] = name
