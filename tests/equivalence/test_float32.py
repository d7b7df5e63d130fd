"""float32 equals transformers: logits of every family, tokens and prompt ids of the real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hetspec.model.checkpoint import open_checkpoint
from tests.equivalence.inprocess import open_model
from tests.equivalence.reference import load_directory, load_llama_gguf, logits_after
from tests.models import FAMILIES, make_checkpoint
from tests.prompts import chat_ids, spread
from tests.system import Ask, Setup, System
from weight_store.config import embedded_model

MAX_LOGIT_ERROR = 1e-4
NEAR_TIE = 1e-3  # of the reference's two best logits: which one wins is then rounding


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_logits_of_every_family_equal_transformers(family: str, form: str, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "hf", family)
    checkpoint = make_checkpoint(tmp_path / "gguf", family, gguf=True) if form == "gguf" else directory
    ids = np.random.default_rng(1).integers(3, open_checkpoint(checkpoint).config.vocab_size - 40, 100).tolist()
    expected = logits_after(load_directory(directory), ids)
    with open_model(checkpoint, "float32", tmp_path / "packs", max_context=128) as model:
        for chunk_tokens in (100, 7):
            found = model.logits(ids, chunk_tokens)
            assert np.abs(found - expected).max() <= MAX_LOGIT_ERROR


async def check_greedy_tokens(cache_dir: Path, count: int, max_tokens: int) -> None:
    """Teacher-forced: after every prefix of our answer, our next token is the reference's best."""
    prompts = [chat_ids(prompt) for prompt in spread(count)]
    setup = Setup(embedded_model(), cache_dir, precision="float32", max_context=4096)
    async with System(setup) as system:
        answers = await system.generate_all([Ask(ids, "tree", max_tokens) for ids in prompts])
    reference = load_llama_gguf(embedded_model())
    compared = 0
    for ids, answer in zip(prompts, answers, strict=True):
        logits = logits_after(reference, [*ids, *answer.tokens[:-1]], first=len(ids) - 1)
        for token, row in zip(answer.tokens, logits, strict=True):
            best = int(row.argmax())
            if token != best:
                assert row[best] - row[token] < NEAR_TIE
                assert np.partition(row, -2)[-2] == row[token]
                break
            compared += 1
    assert compared >= 0.9 * sum(len(answer.tokens) for answer in answers)


async def test_greedy_tokens_of_the_real_model_equal_transformers(cache_dir: Path) -> None:
    await check_greedy_tokens(cache_dir, count=2, max_tokens=32)


@pytest.mark.soak
async def test_greedy_tokens_of_the_real_model_equal_transformers_in_full(cache_dir: Path) -> None:
    await check_greedy_tokens(cache_dir, count=12, max_tokens=64)
