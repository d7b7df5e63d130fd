"""Whether a service answers: gRPC health for units and weight store, /readyz for the orchestrator."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.local.access import Access
from deploy.local.settings import LaunchError, Service
from hetspec.rpc.channel import open_blocking_channel
from hetspec.rpc.tls import RpcTls

_TIMEOUT_S = 1.0


def ready(service: Service) -> bool:
    """Raises LaunchError where it will never be."""
    return _http_ready(service) if service.name == "orchestrator" else _grpc_ready(service)


def _http_ready(service: Service) -> bool:
    try:
        with Access.to(service).open("/readyz", _TIMEOUT_S) as answer:
            return all(json.load(answer)["replicas"].values())  # the drafter too: requests would go on without one
    except HTTPError as error:
        _check_problem(service, error)
        return False
    except (OSError, ValueError, KeyError):
        return False


def _check_problem(service: Service, answer: HTTPError) -> None:
    """Raises LaunchError where it will never be ready."""
    with answer, suppress(OSError, ValueError, AttributeError):
        if problem := json.load(answer).get("problem"):
            raise LaunchError(f"{service.name}: {problem}")


def _grpc_ready(service: Service) -> bool:
    with open_blocking_channel(service.address, tls=_tls(service)) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _tls(service: Service) -> RpcTls | None:
    files = [service.env.get(f"HETSPEC_RPC_TLS_{part}") for part in ("CA", "CERT", "KEY")]
    ca, cert, key = (Path(file) if file else None for file in files)
    return RpcTls(ca, cert, key) if ca and cert and key else None
