"""Mutual TLS between the services: who is let in, under which name, and with renewed certificates."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.certificates import Authority
from drafter.held_target import held_target
from hetspec.model.lease import WeightsUnavailableError
from hetspec.model.weights import WeightSource, read_manifest
from hetspec.rpc import probe
from hetspec.rpc.channel import open_blocking_channel, open_channel
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK
from hetspec.rpc.server import Server, ServerSettings
from hetspec.rpc.tls import RpcTls
from hetspec.rpc.unit import UnitService
from orchestrator.engine.engine import Engine
from orchestrator.engine.settings import EngineSettings
from tests import system
from tests.contract.certificates import Certificates, rpc_tls
from tests.contract.running import wait_for
from tests.models import make_checkpoint
from tests.system import Ask, Setup
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "qwen3", num_hidden_layers=4)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packs")


@asynccontextmanager
async def store(cache: Path, tls: RpcTls | None) -> AsyncIterator[Server]:
    server = Server(WeightStoreService(Store({}, cache)), ServerSettings(grace_s=1, tls=tls))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def health(port: int, tls: RpcTls | None, peer: str) -> Any:
    """What the service says of itself, or the code of the refusal."""
    async with open_channel(f"127.0.0.1:{port}", tls=tls, peer=peer) as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return answer.status


async def test_only_a_peer_with_a_certificate_of_the_authority_is_served(certificates: Certificates, tmp_path: Path):
    async with store(tmp_path, certificates["weight_store"]) as server:
        for service in ("orchestrator", "verifier", "drafter", "sampler", "weight_store"):
            assert await health(server.port, certificates[service], "weight_store") == SERVING
        for stranger in (certificates["stranger"], certificates["expired"], None):
            assert await health(server.port, stranger, "weight_store") is grpc.StatusCode.UNAVAILABLE
        assert await only_trusting(server.port, certificates) is grpc.StatusCode.UNAVAILABLE


async def only_trusting(port: int, certificates: Certificates) -> grpc.StatusCode:
    """Knows the authority, shows no certificate."""
    credentials = grpc.ssl_channel_credentials(certificates.authority.pem)
    options = [("grpc.ssl_target_name_override", "weight-store"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    return refused.value.code()


async def test_a_service_is_taken_only_for_what_its_certificate_names(certificates: Certificates, tmp_path: Path):
    async with store(tmp_path, certificates["drafter"]) as server:
        orchestrator = certificates["orchestrator"]
        assert await health(server.port, orchestrator, "drafter") == SERVING
        assert await health(server.port, orchestrator, "localhost") == SERVING
        for other in ("verifier", "sampler", "weight_store"):
            assert await health(server.port, orchestrator, other) is grpc.StatusCode.UNAVAILABLE


async def test_a_peer_without_tls_on_either_side_is_refused(certificates: Certificates, tmp_path: Path):
    async with store(tmp_path, None) as plain:
        assert await health(plain.port, certificates["orchestrator"], "weight_store") is grpc.StatusCode.UNAVAILABLE
        assert await health(plain.port, None, "weight_store") == SERVING


async def test_renewed_certificates_and_a_renewed_authority_are_taken_up_without_a_restart(tmp_path: Path):
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    for folder in ("store", "peer"):
        old.issue(tmp_path / folder, ["weight-store", "localhost"])
    server_tls, peer_tls = rpc_tls(tmp_path / "store"), rpc_tls(tmp_path / "peer")
    async with store(tmp_path, server_tls) as server:
        assert await health(server.port, peer_tls, "weight_store") == SERVING
        shutil.copytree(tmp_path / "peer", tmp_path / "left")
        for folder in ("store", "peer"):
            new.issue(tmp_path / folder, ["weight-store", "localhost"])
        assert await health(server.port, peer_tls, "weight_store") == SERVING
        assert await health(server.port, rpc_tls(tmp_path / "left"), "weight_store") is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_probe_of_a_service_shows_its_certificate(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
):
    shows = certificates["weight_store" if trusted else "stranger"]
    async with store(tmp_path, certificates["weight_store"]) as server:
        monkeypatch.setenv("HETSPEC_PORT", str(server.port))
        for part in ("ca", "cert", "key"):
            monkeypatch.setenv(f"HETSPEC_RPC_TLS_{part.upper()}", str(getattr(shows, part)))
        assert await asyncio.to_thread(probe.main) == (0 if trusted else 1)


async def test_weights_come_over_mutual_tls_and_not_without(certificates: Certificates, tiny: Path, cache_dir: Path):
    service = WeightStoreService(Store({"target": tiny}, cache_dir), check_interval_s=0.2)
    server = Server(service, ServerSettings(grace_s=1, tls=certificates["weight_store"]))
    await server.start()
    address = f"127.0.0.1:{server.port}"
    try:
        for remote in (False, True):
            source = await asyncio.to_thread(
                WeightSource.open, address, "target", "int8", 20.0, remote=remote, tls=certificates["verifier"]
            )
            buffer = memoryview(bytearray(100))
            await asyncio.to_thread(source.read_into, 0, buffer)
            await asyncio.to_thread(source.close)
            assert any(buffer)
        for tls in (None, certificates["stranger"]):
            with pytest.raises(WeightsUnavailableError):
                await asyncio.to_thread(read_manifest, address, "target", 0.5, tls)
    finally:
        await server.stop()


async def test_all_five_services_work_under_mutual_tls_and_an_impostor_is_never_used(
    certificates: Certificates, tiny: Path, cache_dir: Path
):
    """The tokens are those without TLS. The drafter's certificate is then another unit's: requests go on undrafted, and
    nothing is asked of the target that it holds."""
    setup, ask = Setup(tiny, cache_dir, holds_target=True), Ask(tuple(range(10, 40)), "tree", max_tokens=12)
    async with system.System(setup) as plain:
        expected = (await plain.generate(ask)).tokens
    for drafters_own in (True, False):
        async with under_tls(setup, certificates, "drafter" if drafters_own else "sampler") as engine:
            expects = int(drafters_own)
            await wait_for(lambda engine=engine: all(engine.ready().values()))
            await wait_for(lambda engine=engine, expects=expects: engine.replicas()["drafter"] == expects)
            generation = engine.generate(ask.request())
            tokens = [token.id async for emission in generation for token in emission.tokens]
            assert tokens == expected
            assert (engine.replicas()["drafter"] == 1) == drafters_own
            await wait_for(lambda engine=engine, expects=expects: len(engine._fleet.pre_verifiers.replicas) == expects)
            assert (generation.statistics.drafted > 0) <= drafters_own


@asynccontextmanager
async def under_tls(setup: Setup, certificates: Certificates, drafter_shows: str) -> AsyncIterator[Engine]:
    shows = {"weight_store": "weight_store", "verifier": "verifier", "sampler": "sampler", "drafter": drafter_shows}
    servers: list[Server] = []

    async def start(name: str, service: Any) -> str:
        server = Server(service, ServerSettings(grace_s=1, tls=certificates[shows[name]]))
        servers.append(server)
        await server.start()
        return f"127.0.0.1:{server.port}"

    def own(name: str, settings: Any) -> Any:
        tls = certificates[name]
        return settings.model_copy(update={"rpc_tls_ca": tls.ca, "rpc_tls_cert": tls.cert, "rpc_tls_key": tls.key})

    try:
        address = await start("weight_store", system.weight_store(setup))
        units = {
            "verifier": (VERIFY, system.verifier_unit, system.verifier_settings),
            "drafter": (DRAFT, system.drafter_unit, system.drafter_settings),
            "sampler": (WALK, system.sampler_unit, system.sampler_settings),
        }
        addresses = {"weight_store": address}
        for name, (contract, unit, settings_of) in units.items():
            settings = own(name, settings_of(setup, address))
            beside = held_target(settings) if name == "drafter" else ()
            service = UnitService(contract, lambda unit=unit, settings=settings: unit.load(settings), beside=beside)
            addresses[name] = await start(name, service)
        engine = Engine(system.Addresses(**addresses), EngineSettings(tls=certificates["orchestrator"]))
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()
    finally:
        for server in reversed(servers):
            await server.stop()


def test_a_blocking_channel_checks_the_name_too(certificates: Certificates, tmp_path: Path):
    async def scenario() -> list[Any]:
        async with store(tmp_path, certificates["weight_store"]) as server:
            return [await asyncio.to_thread(ask, server.port, peer) for peer in ("weight_store", "verifier")]

    def ask(port: int, peer: str) -> Any:
        with open_blocking_channel(f"127.0.0.1:{port}", peer=peer, tls=certificates["sampler"]) as channel:
            try:
                return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10).status
            except grpc.RpcError as error:
                return error.code()

    assert asyncio.run(scenario()) == [SERVING, grpc.StatusCode.UNAVAILABLE]
