"""docker-compose up, scaled: every replica works, and what befalls one changes no token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.compose.stack import Stack, run

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1200)]

REPLICAS = {"verifier": 2, "drafter": 3, "sampler": 2}
STREAMS = 8
MODES = ("plain", "chain", "tree", "lever", "ahasd", "full")
PROMPTS = (
    "One, two, three, four, one, two, three,",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return",
    "The capital of France is",
    "🙂 Grüße aus Köln! Grüße aus",
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    models = tmp_path_factory.mktemp("models")
    grace = {"HETSPEC_DRAIN_S": "60", "HETSPEC_STOP_GRACE": "90s"}
    made = Stack({"HETSPEC_MODELS": str(models), "HETSPEC_THREADS": "1", **grace})
    made.down()
    try:
        took_s(made.build, "images built")
        took_s(lambda: made.up(**REPLICAS), "units healthy, orchestrator started")
        yield made
    finally:
        made.down()
    assert made.leftovers() == []


def took_s(action: Any, what: str) -> None:
    began = time.monotonic()
    action()
    print(f"{what}: {time.monotonic() - began:.1f} s")


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=stack.url, timeout=300) as made:
        await until_found(made, REPLICAS)
        yield made


async def until_found(client: httpx.AsyncClient, replicas: dict[str, int]) -> None:
    async with asyncio.timeout(120):
        while await found(client) != replicas:
            await asyncio.sleep(0.2)


async def found(client: httpx.AsyncClient) -> dict[str, int] | None:
    """The replicas of each unit; None until all is ready: Compose does not wait for the last service it starts."""
    try:
        answer = await client.get("/readyz")
    except httpx.TransportError:
        return None
    told: dict[str, int] = answer.json()["replicas"]
    return told if answer.status_code == 200 else None


def body(number: int, mode: str, max_tokens: int) -> dict[str, Any]:
    prompt, temperature = PROMPTS[number % len(PROMPTS)], (0.0, 0.8)[number % 2]
    return {
        "prompt": f"{number}. {prompt}",
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": number,
        "stream": True,
        "hetspec": {"mode": mode},
    }


async def streamed(client: httpx.AsyncClient, fields: dict[str, Any], begun: asyncio.Event | None = None) -> str:
    """The text of a stream that came to its end; sets `begun` when there is some."""
    text, finish = "", None
    async with client.stream("POST", "/v1/completions", json=fields) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                assert "error" not in chunk
                text += chunk["choices"][0]["text"]
                finish = chunk["choices"][0]["finish_reason"]
                if begun is not None and text:
                    begun.set()
    assert finish in ("stop", "length")
    return text


async def texts(client: httpx.AsyncClient, modes: tuple[str, ...], max_tokens: int) -> list[str]:
    """Of STREAMS requests at once, their modes in turn."""
    bodies = [body(number, modes[number % len(modes)], max_tokens) for number in range(STREAMS)]
    return await asyncio.gather(*(streamed(client, fields) for fields in bodies))


async def test_packaged_model_answers_a_chat(client: httpx.AsyncClient) -> None:
    message = {"role": "user", "content": "What is the capital of France?"}
    answer = await client.post("/v1/chat/completions", json={"messages": [message], "temperature": 0})
    assert "Paris" in answer.raise_for_status().json()["choices"][0]["message"]["content"]


async def test_every_replica_works_and_all_modes_say_the_same(stack: Stack, client: httpx.AsyncClient) -> None:
    units = {container: name for name in REPLICAS for container in stack.containers(name)}
    before = {container: stack.cpu_s(container) for container in units}
    assert await texts(client, ("tree", "chain"), 64) == await texts(client, ("plain",), 64)
    used_s = {container: stack.cpu_s(container) - before[container] for container in units}
    print({f"{units[container]} {container[:4]}": round(spent, 2) for container, spent in used_s.items()})
    assert min(used_s.values()) > 0.05  # an idle one uses a tenth of that


async def test_units_compile_nothing_when_they_start(stack: Stack) -> None:
    program = (
        "import json, os; from pathlib import Path;"
        "folders = os.environ['HETSPEC_KERNELS'], Path.home() / '.cache/hetspec/kernels';"
        "print(json.dumps([sorted(path.name for path in Path(folder).rglob('*.nb*')) for folder in folders]))"
    )
    for name in REPLICAS:
        for container in stack.containers(name):
            made, used = stack.python(container, program)
            assert made
            assert used == made


async def test_every_service_looks_at_itself_with_no_more_rights_than_it_has(client: httpx.AsyncClient) -> None:
    streams = asyncio.create_task(texts(client, ("tree", "plain"), 256))
    services = (await client.get("/v1/hetspec/units")).raise_for_status().json()["data"]
    assert len(services) == 2 + sum(REPLICAS.values())
    assert all(service["problem"] is None for service in services)
    for unit in ("orchestrator", "weight_store", *REPLICAS):
        answer = await client.post("/v1/hetspec/profile", json={"unit": unit, "seconds": 2})
        told = answer.raise_for_status().json()
        assert (told["sampler"]["name"], told["sampler"]["note"]) == ("py-spy", "")
        print(f"{unit}: {sum(stack['samples'] for stack in told['stacks'])} samples, {len(told['tasks'])} tasks")
    for replica in range(REPLICAS["verifier"]):
        answer = await client.post("/v1/hetspec/profile", json={"unit": "verifier", "replica": replica, "seconds": 1})
        assert answer.raise_for_status().json()["service"]["replica"] == replica
    await streams


async def test_replicas_are_found_while_it_runs_and_dropped_when_gone(stack: Stack, client: httpx.AsyncClient) -> None:
    await asyncio.to_thread(stack.up, **REPLICAS | {"sampler": 3})
    await until_found(client, REPLICAS | {"sampler": 3})
    await asyncio.to_thread(stack.up, **REPLICAS)
    await until_found(client, REPLICAS)


async def test_a_verifier_killed_and_the_other_frozen_under_8_streams_change_no_token(
    stack: Stack, client: httpx.AsyncClient
) -> None:
    """All sessions move to the second verifier, and from there to the first, started again."""
    expected = await texts(client, ("plain",), 256)
    killed, frozen = stack.containers("verifier")
    began = [asyncio.Event() for _ in range(STREAMS)]
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        streams = [
            group.create_task(streamed(client, body(number, MODES[number % len(MODES)], 256), began[number]))
            for number in range(STREAMS)
        ]
        await asyncio.gather(*(event.wait() for event in began))
        for signal, container in (("KILL", killed), ("STOP", frozen)):
            await signalled(signal, container)
            print(f"streams that went on after SIG{signal}: {sum(not stream.done() for stream in streams)}")
            assert not all(stream.done() for stream in streams)
        await asyncio.to_thread(run, "docker", "start", killed)
    print(f"8 streams of 256 tokens despite both: {time.monotonic() - started:.1f} s")
    assert [stream.result() for stream in streams] == expected
    await signalled("CONT", frozen)
    await until_found(client, REPLICAS)


async def test_scaling_down_under_8_streams_moves_none_of_them(stack: Stack, client: httpx.AsyncClient) -> None:
    """Compose tells the second verifier to end: it serves its sessions to their ends first."""
    expected = await texts(client, ("plain",), 64)
    before = await rebuilds(client)
    began = [asyncio.Event() for _ in range(STREAMS)]
    async with asyncio.TaskGroup() as group:
        streams = [
            group.create_task(streamed(client, body(n, MODES[n % len(MODES)], 64), began[n])) for n in range(STREAMS)
        ]
        await asyncio.gather(*(event.wait() for event in began))
        await asyncio.to_thread(stack.up, **REPLICAS | {"verifier": 1})
    assert [stream.result() for stream in streams] == expected
    assert await rebuilds(client) == before
    await until_found(client, REPLICAS | {"verifier": 1})
    await asyncio.to_thread(stack.up, **REPLICAS)
    await until_found(client, REPLICAS)


async def rebuilds(client: httpx.AsyncClient) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("hetspec_rebuilds_total")))


async def signalled(signal: str, container: str) -> None:
    await asyncio.to_thread(run, "docker", "kill", "--signal", signal, container)


async def test_units_and_store_end_by_themselves_when_told_to(stack: Stack) -> None:
    """SIGTERM to a process without a shell around it: code 0, not that of a kill after the time of grace."""
    for name in ("verifier", "drafter", "sampler", "weight_store", "orchestrator"):
        container = stack.containers(name)[0]
        await asyncio.to_thread(run, "docker", "stop", container)
        assert run("docker", "inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"
