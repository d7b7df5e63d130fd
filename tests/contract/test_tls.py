"""HTTPS for clients: trust, renewal, the probe."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from deploy.certificates import make_certificates
from orchestrator import probe
from tests.contract.certificates import Certificates
from tests.contract.fake_engine import FakeEngine, says
from tests.contract.running import CHAT, HELLO, serve


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def https(certificates: Certificates, tmp_path: Path) -> Path:
    certificates.authority.issue(tmp_path / "https", ["localhost", "127.0.0.1"])
    return tmp_path / "https"


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "ca.pem")


def files(folder: Path) -> dict[str, Path]:
    return {"tls_cert": folder / "cert.pem", "tls_key": folder / "key.pem"}


async def test_the_api_answers_over_https_and_openais_client_too(https: Path):
    async with serve(FakeEngine(says("Hel", "lo")), verify=trusting(https), **files(https)) as running:
        assert (await running.client.post(CHAT, json=HELLO)).status_code == 200
        http_client = httpx.AsyncClient(verify=trusting(https))
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="x", http_client=http_client) as client:
            messages: Any = HELLO["messages"]
            stream = await client.chat.completions.create(model="default", messages=messages, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello"


async def test_who_does_not_trust_the_authority_or_speaks_plain_http_is_not_served(https: Path):
    engine = FakeEngine(says("never"))
    async with serve(engine, verify=trusting(https), **files(https)) as running:
        async with httpx.AsyncClient() as stranger:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await stranger.post(running.url + CHAT, json=HELLO)
            with pytest.raises(httpx.TransportError):
                await stranger.post(f"http://127.0.0.1:{running.port}{CHAT}", json=HELLO)
        assert (await running.client.get("/healthz")).status_code == 200
    assert engine.requests == []


async def test_a_renewed_certificate_is_shown_without_a_restart_and_a_broken_one_is_not(
    https: Path, certificates: Certificates
):
    async with serve(FakeEngine(says("x")), verify=trusting(https), **files(https)) as running:
        first = await shown(running.port)
        certificates.authority.issue(https, ["localhost", "127.0.0.1"])
        async with asyncio.timeout(10):
            while (second := await shown(running.port)) == first:
                await asyncio.sleep(0.05)
        (https / "key.pem").write_text("nonsense")
        await asyncio.sleep(1.5)
        assert await shown(running.port) == second
        assert (await running.client.get("/healthz")).status_code == 200


async def shown(port: int) -> str:
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


@pytest.mark.parametrize("ready", [True, False])
async def test_the_probe_of_the_http_port_speaks_https(https: Path, monkeypatch: pytest.MonkeyPatch, ready: bool):
    engine = FakeEngine(says("x"))
    engine.units["verifier"] = ready
    async with serve(engine, verify=trusting(https), **files(https)) as running:
        monkeypatch.setenv("HETSPEC_PORT", str(running.port))
        monkeypatch.setenv("HETSPEC_TLS_CERT", str(https / "cert.pem"))
        assert await asyncio.to_thread(probe.main) == (0 if ready else 1)


def test_certificates_are_renewed_by_the_same_authority_and_keys_are_for_their_owner_alone(tmp_path: Path):
    make_certificates(tmp_path, ["api.example"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pem")}
    make_certificates(tmp_path, ["api.example"])
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert changed == {path for path in before if path.name != "ca.pem" and path.parent.name != "authority"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in before if path.name == "key.pem")
