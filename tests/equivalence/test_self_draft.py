"""With the target as its own draft every token of a chain is the token: a round emits depth + 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prompts import chat_ids, spread
from tests.system import Answer, Ask, Setup, System
from weight_store.config import embedded_model


def check_everything_is_accepted(ask: Ask, answer: Answer) -> None:
    """The last round may be shorter: the output ends in it."""
    statistics, per_round = answer.statistics, ask.max_depth + 1
    assert statistics.rounds == -(-len(answer.tokens) // per_round)
    assert statistics.emitted == len(answer.tokens)
    # Only what lies behind an end token is not accepted.
    assert statistics.verified - statistics.accepted < per_round
    whole_rounds = statistics.rounds - 1
    assert statistics.accepted >= whole_rounds * ask.max_depth


@pytest.mark.usefixtures("no_lookup")
@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("depth", [1, 4, 9])
async def test_a_chain_of_the_target_itself_is_accepted_whole(
    depth: int, precision: str, tiny: Path, cache_dir: Path
) -> None:
    asks = [
        Ask(tuple(range(20, 20 + length)), "chain", 8 * (depth + 1), temperature, seed, max_depth=depth)
        for seed, length in enumerate((1, 40))
        for temperature in (0.0, 0.8)
    ]
    async with System(Setup(tiny, cache_dir, draft=tiny, precision=precision)) as system:
        answers = await system.generate_all(asks)
    for ask, answer in zip(asks, answers, strict=True):
        check_everything_is_accepted(ask, answer)
    whole = [answer for ask, answer in zip(asks, answers, strict=True) if len(answer.tokens) == ask.max_tokens]
    assert whole
    assert all(answer.statistics.accept_length == depth + 1 for answer in whole)


@pytest.mark.usefixtures("no_lookup")
async def test_a_chain_of_the_real_model_itself_is_accepted_whole(cache_dir: Path) -> None:
    model = embedded_model()
    asks = [Ask(chat_ids(prompt), "chain", 24, 0.8, seed=7, max_depth=5) for prompt in spread(2)]
    async with System(Setup(model, cache_dir, draft=model, max_context=2048)) as system:
        answers = await system.generate_all(asks)
    for ask, answer in zip(asks, answers, strict=True):
        check_everything_is_accepted(ask, answer)
