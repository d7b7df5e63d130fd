"""The orchestrator's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from hetspec.hardware.changes import parse_changes
from hetspec.hardware.cost_as import CostAs, parse_cost_as
from hetspec.hardware.profile import Profile, changed, load_profile, profile_names
from hetspec.rpc.settings import SECRET_ERROR, Port, ServiceSettings
from hetspec.rpc.tls import check_key_pair
from orchestrator.api.keys import KeyRing, parse_keys, read_keys
from orchestrator.certificate import ServerCertificate
from orchestrator.clock.settings import WorldSettings

_PLACE = r"[^:,\s]+:[0-9]{1,5}"
Address = Annotated[str, StringConstraints(pattern=rf"^{_PLACE}$")]  # host:port
Addresses = Annotated[str, StringConstraints(pattern=rf"^{_PLACE}(,{_PLACE})*$")]  # of one unit's replicas
_ORIGIN = r"https?://[^/,\s]+"
Origins = Annotated[str, StringConstraints(pattern=rf"^(\*|{_ORIGIN}(,{_ORIGIN})*)$")]  # comma-separated, or * for any


def _holds_keys(value: SecretStr) -> SecretStr:
    try:
        parse_keys(value.get_secret_value().split(","))
    except ValueError as error:
        raise PydanticCustomError(SECRET_ERROR, "{reason}", {"reason": str(error)}) from None
    return value


def _profile(name: Any) -> Any:
    return load_profile(name) if isinstance(name, str) else name


def _changes(text: Any) -> Any:
    return parse_changes(text) if isinstance(text, str) else text


def _cost_as(text: Any) -> Any:
    return parse_cost_as(text) if isinstance(text, str) else text


def _is_key_file(path: Path) -> Path:
    read_keys(path)
    return path


class OrchestratorSettings(ServiceSettings):
    port: Port = 8000

    weight_store: Address = "127.0.0.1:7001"
    verifier: Addresses = "127.0.0.1:7002"
    drafter: Addresses = "127.0.0.1:7003"
    sampler: Addresses = "127.0.0.1:7004"

    mode: Literal["plain", "chain", "tree", "lever", "ahasd", "full"] = "lever"  # of requests that name none
    # Likewise, where no costs size the tree; a row of a pass costs about so much of it.
    min_gain: Annotated[float, Field(ge=0, le=1)] = 0.3
    # The time that answers tell and policies go by: the host's, or that of emulated hardware.
    clock: Literal["host", "emulated", "paced"] = "host"
    hardware: Annotated[Profile | None, BeforeValidator(_profile)] = None  # a profile's name, or a file
    hardware_set: Annotated[dict[str, object], BeforeValidator(_changes), NoDecode] = Field(default_factory=dict)
    cost_as: Annotated[CostAs | None, BeforeValidator(_cost_as)] = None  # MODEL:DATATYPE[+MODEL:DATATYPE]
    pace: Annotated[float, Field(gt=0)] = 1.0  # emulated seconds a second, of a paced clock
    max_running: Annotated[int, Field(ge=1)] = 64  # choices computed at once
    max_queued: Annotated[int, Field(ge=0)] = 256  # choices that wait for that; more are refused
    max_body_bytes: Annotated[int, Field(ge=1024)] = 1 << 20  # of a request
    # KV positions that each verifier and drafter keeps of ended requests, or a share of all it has; 0: none.
    prefix_tokens: Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]*|([1-9][0-9]?|100)%)$")] = "50%"
    prefix_lease_s: Annotated[float, Field(gt=0)] = 300.0  # without use
    # What is remembered of requests that ended well, for `hetspec explain` and `hetspec trace`.
    kept_requests: Annotated[int, Field(ge=0)] = 256
    kept_tasks: Annotated[int, Field(ge=0)] = 20_000  # of them all, the newest; 5 kB each, emulated
    timeline_tasks: Annotated[int, Field(ge=0)] = 10_000  # of a choice
    request_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    drain_s: Annotated[float, Field(ge=0)] = 10.0  # for running requests, when told to stop

    # Of these at most one; without either, whoever reaches the port is served.
    api_keys: Annotated[SecretStr, AfterValidator(_holds_keys)] | None = None  # comma-separated
    api_keys_file: Annotated[Path, AfterValidator(_is_key_file)] | None = None  # one a line
    cors_origins: Origins | None = None  # of web pages that may use the server from a browser
    tls_cert: Path | None = None  # HTTPS: certificate and key, or neither
    tls_key: Path | None = None

    def key_ring(self) -> KeyRing | None:
        if self.api_keys_file is not None:
            return KeyRing(read_keys(self.api_keys_file), self.api_keys_file)
        if self.api_keys is not None:
            return KeyRing(parse_keys(self.api_keys.get_secret_value().split(",")))
        return None

    @property
    def certificate(self) -> ServerCertificate | None:
        return ServerCertificate(self.tls_cert, self.tls_key) if self.tls_cert and self.tls_key else None

    @property
    def world(self) -> WorldSettings | None:
        if self.clock == "host" or self.hardware is None:
            return None
        return WorldSettings(
            changed(self.hardware, self.hardware_set), self.cost_as, self.pace if self.clock == "paced" else None
        )

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.clock == "host" and (self.hardware or self.cost_as):
            raise ValueError("HETSPEC_HARDWARE, HETSPEC_COST_AS: need HETSPEC_CLOCK=emulated or paced")
        if self.hardware_set and self.hardware is None:
            raise ValueError("HETSPEC_HARDWARE_SET: needs HETSPEC_HARDWARE")
        if self.hardware is not None:
            try:
                changed(self.hardware, self.hardware_set)
            except ValueError as error:
                raise ValueError(f"HETSPEC_HARDWARE_SET: {error}") from error
        if self.clock != "host" and self.hardware is None:
            names = ", ".join(profile_names())
            raise ValueError(f"HETSPEC_HARDWARE: HETSPEC_CLOCK={self.clock} needs one of {names}, or a file")
        if self.clock != "paced" and "pace" in self.model_fields_set:
            raise ValueError("HETSPEC_PACE: needs HETSPEC_CLOCK=paced")
        if self.api_keys is not None and self.api_keys_file is not None:
            raise ValueError("HETSPEC_API_KEYS, HETSPEC_API_KEYS_FILE: give one of them")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("HETSPEC_TLS_CERT, HETSPEC_TLS_KEY: give both, or neither")
        if self.tls_cert is not None and self.tls_key is not None:
            check_key_pair(self.tls_cert, self.tls_key)
        return self
