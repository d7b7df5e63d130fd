"""The orchestrator's only question to the weight store: which checkpoint, and its text side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc.aio

from hetspec.rpc.channel import open_channel
from hetspec.rpc.logs import log_event
from hetspec.rpc.tls import RpcTls
from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from hetspec.v1 import weight_store_pb2, weight_store_pb2_grpc

_CALL_TIMEOUT_S = 10.0
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """config_json: what ModelConfig.to_json writes; draft_config_json: empty where there is no draft model."""

    name: str
    fingerprint: str
    text: TextModel
    config_json: str
    draft_config_json: str


async def fetch_checkpoint(address: str, tls: RpcTls | None = None) -> Checkpoint:
    """Asks until the store answers."""
    while True:
        try:
            manifest, draft = await _fetch_manifests(address, tls)
        except OSError as error:
            log_event("no certificate to show the weight store", address=address, reason=str(error))
            await asyncio.sleep(_CALL_TIMEOUT_S)
            continue
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                log_event("weight store refuses", address=address, reason=error.details())
            await asyncio.sleep(_PAUSE_S)
            continue
        try:
            text = await asyncio.to_thread(TextModel, TextSpec.from_pb(manifest.text))
            draft_json = draft.config_json if draft is not None else ""
            return Checkpoint(manifest.name, manifest.fingerprint, text, manifest.config_json, draft_json)
        except ValueError as error:
            log_event("weight store's manifest is no use", address=address, reason=str(error))
            await asyncio.sleep(_CALL_TIMEOUT_S)


async def _fetch_manifests(
    address: str, tls: RpcTls | None
) -> tuple[weight_store_pb2.Manifest, weight_store_pb2.Manifest | None]:
    """The target's, and the draft model's where there is one."""
    async with open_channel(address, peer="weight_store", tls=tls) as channel:
        stub = weight_store_pb2_grpc.WeightStoreStub(channel)

        async def manifest(role: str) -> weight_store_pb2.Manifest:
            return await stub.GetManifest(weight_store_pb2.GetManifestRequest(role=role), timeout=_CALL_TIMEOUT_S)

        target = await manifest("target")
        try:
            return target, await manifest("draft")
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return target, None
