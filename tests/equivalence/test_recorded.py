"""A recorded target answers as the one that was recorded, and its answers take the same emulated time and energy."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import load_profile
from orchestrator.clock.settings import WorldSettings
from orchestrator.engine.generation import Generation
from orchestrator.engine.output import Output
from orchestrator.engine.pumped import PumpedGeneration
from orchestrator.engine.recorded import Recorded, RecordedAnswer, RecordedChoosing, RecordedVerifying
from orchestrator.engine.round import Steps
from orchestrator.engine.session import Digests, Session
from tests.system import Answer, Ask, Setup, System

PROMPTS = (tuple(range(30, 110)), (7,), tuple(range(40, 60)) * 2, tuple(range(10, 300)))


class Recording:
    """Generations of an engine whose verifier and sampler are a record."""

    def __init__(self, system: System, recorded: Recorded, n_layers: int) -> None:
        self._engine = system.engine
        steps, bounds, world = self._engine._steps(), self._engine._bounds(), self._engine.world
        assert world is not None
        self._steps = Steps(
            steps.drafting,
            RecordedVerifying(recorded, world, bounds, n_layers),
            RecordedChoosing(recorded, world, bounds),
            steps.scoring,
        )

    async def generate(self, ask: Ask) -> Answer:
        engine, request = self._engine, ask.request()
        session = Session("recorded", request, Digests("", ""), engine._clock)
        inner = Generation(session, self._steps, Output(request, engine.text))
        tokens: list[int] = []
        async with aclosing(PumpedGeneration(inner, engine._clock, None, lambda tokens: 0)) as generation:
            async for emission in generation:
                tokens += [token.id for token in emission.tokens]
        return Answer(tokens, generation.statistics)


@pytest.fixture
def setup(tiny: Path, cache_dir: Path) -> Setup:
    world = WorldSettings(load_profile("oneplus12"), parse_cost_as("llama2-7b:int4+llama3.2-1b:int4"))
    return Setup(tiny, cache_dir, draft=tiny, chunk_tokens=64, world=world)


@pytest.mark.parametrize("mode", ["plain", "chain", "tree"])
async def test_record_gives_tokens_times_and_energy_of_what_it_is_of(setup: Setup, mode: str) -> None:
    async with System(setup) as system:
        asks = [Ask(prompt, mode, 40) for prompt in PROMPTS]
        real = [await system.generate(ask) for ask in asks]
        recorded = {
            ask.prompt: RecordedAnswer(tuple(answer.tokens), None) for ask, answer in zip(asks, real, strict=True)
        }
        recording = Recording(system, recorded, n_layers=4)
        replayed = [await recording.generate(ask) for ask in asks]
    for ask, was, now in zip(asks, real, replayed, strict=True):
        assert now.tokens == was.tokens, ask
        assert (now.statistics.rounds, now.statistics.accepted) == (was.statistics.rounds, was.statistics.accepted)
        assert now.statistics.presence.token_ns == was.statistics.presence.token_ns
        assert now.statistics.presence.energy_pj() == was.statistics.presence.energy_pj()
        assert now.statistics.presence.time_ns() == was.statistics.presence.time_ns()
