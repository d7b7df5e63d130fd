"""Whether a service answers: gRPC health for units and weight store, /readyz for the orchestrator."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.local.settings import Service

_TIMEOUT_S = 1.0


def ready(service: Service) -> bool:
    return _http_ready(service.address) if service.name == "orchestrator" else _grpc_ready(service.address)


def _http_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=_TIMEOUT_S) as answer:
            return all(json.load(answer)["replicas"].values())  # the drafter too: requests would go on without one
    except (OSError, ValueError, KeyError):
        return False


def _grpc_ready(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
