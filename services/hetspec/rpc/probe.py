"""python -m hetspec.rpc.probe: whether the service at this host's HETSPEC_PORT is ready. Exit code 0, else 1."""

from __future__ import annotations

import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hetspec.rpc.channel import channel_options

_TIMEOUT_S = 10.0


def main() -> int:
    with grpc.insecure_channel(f"127.0.0.1:{os.environ['HETSPEC_PORT']}", options=channel_options()) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            print(error.code(), file=sys.stderr)
            return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(status)
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
