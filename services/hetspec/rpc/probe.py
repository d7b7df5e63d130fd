"""python -m hetspec.rpc.probe: whether the service at this host's HETSPEC_PORT is ready. Exit code 0, else 1."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hetspec.rpc.channel import open_blocking_channel
from hetspec.rpc.tls import RpcTls

_TIMEOUT_S = 10.0


def main() -> int:
    with open_blocking_channel(f"127.0.0.1:{os.environ['HETSPEC_PORT']}", tls=_tls()) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            print(error.code(), file=sys.stderr)
            return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(status)
    return 0 if status == "SERVING" else 1


def _tls() -> RpcTls | None:
    """The service's own, which has checked it."""
    if "HETSPEC_RPC_TLS_CA" not in os.environ:
        return None
    ca, cert, key = (Path(os.environ[f"HETSPEC_RPC_TLS_{part}"]) for part in ("CA", "CERT", "KEY"))
    return RpcTls(ca, cert, key)


if __name__ == "__main__":
    sys.exit(main())
