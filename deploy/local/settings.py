"""Where each service runs, from the same HETSPEC_* variables that the services read."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from drafter.config import DrafterSettings
from hetspec.rpc.settings import settings_error
from orchestrator.config import OrchestratorSettings
from sampler.config import SamplerSettings
from verifier.config import VerifierSettings
from weight_store.config import WeightStoreSettings

PREFIX = "HETSPEC_"
TRACES_PREFIX = "OTEL_"  # where spans go, by the standard variables
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
    files: tuple[Path, ...] = ()  # that it reads when it starts

    @property
    def address(self) -> str:
        return f"{'127.0.0.1' if self.host in ('0.0.0.0', '::') else self.host}:{self.port}"

    def digest(self, code: str) -> str:
        """Changes when the process would start differently: settings, code, or files that settings name."""
        files = _digest(path.read_bytes() for path in self.files)
        return hashlib.sha256(json.dumps([code, self.host, self.port, dict(self.env), files]).encode()).hexdigest()


SETTINGS: dict[str, type[BaseSettings]] = {
    "weight_store": WeightStoreSettings,
    "verifier": VerifierSettings,
    "drafter": DrafterSettings,
    "sampler": SamplerSettings,
    "orchestrator": OrchestratorSettings,
}
UNITS = {"weight_store": 7001, "verifier": 7002, "drafter": 7003, "sampler": 7004}
CLIENTS_OWN = {"HETSPEC_URL", "HETSPEC_API_KEY"}  # of the `hetspec` command; no service reads them
_SECRETS = ("HETSPEC_API_KEYS", "HETSPEC_API_KEYS_FILE")
METRICS_PORT = "7100"  # of the orchestrator; the units' follow, in this order


def check(environ: Mapping[str, str]) -> None:
    """Raises LaunchError for a HETSPEC_ variable that no service reads, or that one would refuse.

    Before anything is stopped or started: a slip must not take down what runs.
    """
    named = {name for name in environ if name.startswith(PREFIX)}
    known = {PREFIX + field.upper() for kind in SETTINGS.values() for field in kind.model_fields}
    for name in sorted(named - known - CLIENTS_OWN):
        close = difflib.get_close_matches(name, known, 1)
        raise LaunchError(f"{name}: no such setting" + (f"; {close[0]}?" if close else ""))
    for service, kind in SETTINGS.items():
        variables = {field: PREFIX + field.upper() for field in kind.model_fields}
        try:
            kind.model_validate({field: environ[name] for field, name in variables.items() if name in named})
        except ValidationError as error:
            raise LaunchError(settings_error(service, error)) from None
    for name in ("HETSPEC_TARGET", "HETSPEC_DRAFT", "HETSPEC_EARLY_EXIT", "HETSPEC_ACCEPTANCE"):
        is_path = name in named and not (name != "HETSPEC_TARGET" and environ[name] == "none")
        if is_path and not Path(environ[name]).expanduser().exists():
            raise LaunchError(f"{name} = {environ[name]!r}: there is no such file or folder")


def services(environ: Mapping[str, str]) -> list[Service]:
    """The five, in the order they start. Raises LaunchError when a setting does not name a place on this machine."""
    ours = (PREFIX, TRACES_PREFIX)
    named = sorted(name for name in environ if name.startswith(ours) and name not in CLIENTS_OWN)
    shared = {name: environ[name] for name in named}
    host, port = shared.pop("HETSPEC_HOST", "127.0.0.1"), shared.pop("HETSPEC_PORT", "8000")
    places = {name: _unit_place(name, shared.get(PREFIX + name.upper()), default) for name, default in UNITS.items()}
    places["orchestrator"] = (host, _port("HETSPEC_PORT", port))
    metrics = _metrics_ports(shared.pop("HETSPEC_METRICS_PORT", METRICS_PORT))
    _refuse_shared_ports(places, metrics)
    return [
        Service(
            name,
            host,
            port,
            _without_secrets(name, shared) | _own_environ(host, port, metrics[name]),
            _files_of_hardware(shared) if name == "orchestrator" else (),
        )
        for name, (host, port) in places.items()
    ]


def _files_of_hardware(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """A profile and configurations of models of the user's own."""
    models = (model.rpartition(":")[0].strip() for model in environ.get("HETSPEC_COST_AS", "").split("+"))
    named = [Path(name) for name in (environ.get("HETSPEC_HARDWARE", ""), *models) if name]
    places = (path / "config.json" if path.is_dir() else path for path in named)
    return tuple(path for path in places if path.is_file())


def _without_secrets(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """API keys are the orchestrator's alone."""
    is_kept = name == "orchestrator"
    return {setting: value for setting, value in environ.items() if is_kept or setting not in _SECRETS}


def _own_environ(host: str, port: int, metrics_port: int) -> dict[str, str]:
    return {"HETSPEC_HOST": host, "HETSPEC_PORT": str(port), "HETSPEC_METRICS_PORT": str(metrics_port)}


def _metrics_ports(first: str) -> dict[str, int]:
    """Five in a row, the orchestrator's first. 0: any free ones."""
    names = ("orchestrator", *UNITS)
    if first == "0":
        return dict.fromkeys(names, 0)
    start = _port("HETSPEC_METRICS_PORT", first)
    return {name: _port("HETSPEC_METRICS_PORT", str(start + index)) for index, name in enumerate(names)}


def code_digest(root: Path) -> str:
    """Of everything the processes are made of: sources, hardware profiles, contracts, pinned requirements."""
    services, proto = root / "services", root / "proto"
    files = [root / "pyproject.toml", *_files(services, "*.py"), *_files(services, "*.yaml"), *_files(proto, "*.proto")]
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


def _refuse_shared_ports(places: Mapping[str, tuple[str, int]], metrics: Mapping[str, int]) -> None:
    taken: dict[int, str] = {}
    wanted = [(name, port) for name, (_, port) in places.items()]
    for name, port in (*wanted, *((f"{name}'s metrics", port) for name, port in metrics.items() if port)):
        if port in taken:
            raise LaunchError(f"port {port} is set for both {taken[port]} and {name}")
        taken[port] = name
