"""Logprobs of an echoed prompt, over HTTP from the whole system in float32, are those of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from tests.contract.running import Running
from tests.equivalence.http import http
from tests.equivalence.reference import load_directory, logits_after
from tests.system import Setup

TEXT = "Wer reitet so spät durch Nacht und Wind? 日本語 😀, naïve."
TOLERANCE = 1e-3


async def echo(running: Running, **fields: Any) -> Any:
    answer = await running.client.post("/v1/completions", json={"temperature": 0, "echo": True} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def reference_logprobs(model: Any, ids: Sequence[int], vocab_size: int) -> np.ndarray:
    """After each token: [len(ids), tokens]; padding ids have no probability."""
    return special.log_softmax(logits_after(model, ids)[:, :vocab_size].astype(np.float64), axis=1)


@pytest.mark.parametrize("chunk_tokens", [4, 256])
async def test_echoed_logprobs_are_the_references(chunk_tokens: int, tiny: Path, cache_dir: Path) -> None:
    text = TextModel(open_checkpoint(tiny).text)
    ids, model = text.encode_prompt(TEXT), load_directory(tiny)
    expected = reference_logprobs(model, ids, len(text.vocabulary.tokens))
    async with http(Setup(tiny, cache_dir, draft=tiny, precision="float32", chunk_tokens=chunk_tokens)) as running:
        answers = [await echo(running, prompt=TEXT, max_tokens=count, logprobs=3) for count in (0, 1, 5)]
    for answer in answers:
        (choice,) = answer["choices"]
        told = choice["logprobs"]
        assert choice["text"].startswith(TEXT)
        assert answer["usage"]["prompt_tokens"] == len(ids)
        assert {len(entries) for entries in told.values()} == {len(ids) + answer["usage"]["completion_tokens"]}
        assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
        for place in range(1, len(ids)):
            row = expected[place - 1]
            assert told["token_logprobs"][place] == pytest.approx(row[ids[place]], abs=TOLERANCE)
            best = sorted(told["top_logprobs"][place].values(), reverse=True)[:3]
            assert best == pytest.approx(np.sort(row)[::-1][:3].tolist(), abs=TOLERANCE)


async def test_prompts_of_ids_and_of_text_are_echoed_alike(tiny: Path, cache_dir: Path) -> None:
    text = TextModel(open_checkpoint(tiny).text)
    texts = [TEXT, "The quick brown fox", "x"]
    ids = [text.encode_prompt(prompt) for prompt in texts]
    async with http(Setup(tiny, cache_dir, precision="float32")) as running:
        of_texts = await echo(running, prompt=texts, max_tokens=1, logprobs=1, n=2, seed=1)
        of_ids = await echo(running, prompt=ids, max_tokens=1, logprobs=1, n=2, seed=1)
        alone = await echo(running, prompt=texts[0], max_tokens=1, logprobs=1, seed=1)
        untold = await echo(running, prompt=TEXT, max_tokens=0)
    assert of_ids["choices"] == of_texts["choices"]
    assert [choice["index"] for choice in of_texts["choices"]] == list(range(6))
    assert of_texts["choices"][0] == alone["choices"][0]
    assert all(choice["text"].startswith(texts[i // 2]) for i, choice in enumerate(of_texts["choices"]))
    assert of_texts["usage"]["prompt_tokens"] == sum(map(len, ids))
    assert of_texts["usage"]["completion_tokens"] == 6

    assert untold["choices"] == [{"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "length"}]
    assert (untold["usage"]["completion_tokens"], untold["hetspec"]["rounds"]) == (0, 0)
