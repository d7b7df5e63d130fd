"""What users of such servers complain of, and what this one promises instead: in every mode, streamed and not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from tests.contract.running import Running
from tests.equivalence.http import Completion, complete, http
from tests.equivalence.reference import load_directory, logits_after
from tests.system import Setup

PROMPT = "The quick brown fox"
WAYS = [(mode, streamed) for mode in ("plain", "chain", "tree", "lever", "ahasd", "full") for streamed in (False, True)]


async def in_every_way(running: Running, **fields: Any) -> list[Completion]:
    """The same request in every mode, streamed and not."""
    options = {"max_nodes": 16, "max_depth": 4}
    return [
        await complete(running, streamed, **({"prompt": PROMPT, "hetspec": {"mode": mode, **options}} | fields))
        for mode, streamed in WAYS
    ]


async def tokens_of(running: Running, **fields: Any) -> list[str]:
    """Of a plain answer."""
    (choice,) = (await complete(running, prompt=PROMPT, hetspec={"mode": "plain"}, logprobs=0, **fields)).choices
    return choice.logprobs["tokens"]


async def test_a_stop_string_inside_an_accepted_block_cuts_text_logprobs_and_usage_together(
    tiny: Path, cache_dir: Path
) -> None:
    """At every place of a plain answer, with the model as its own draft, so that whole blocks are accepted."""
    asked = {"max_tokens": 16, "seed": 4, "temperature": 0.9, "ignore_eos": True}
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running:
        tokens = await tokens_of(running, **asked)
        texts = ["\ufffd" if token.startswith("bytes:") else token for token in tokens]
        for stop in [text for text in texts if text.isascii()][2:9:2]:
            count = next(count for count in range(1, len(texts) + 1) if stop in "".join(texts[:count]))
            for answer in await in_every_way(running, stop=[stop, "never said"], logprobs=1, **asked):
                (choice,) = answer.choices
                assert stop not in choice.text
                assert choice.finish_reason == "stop"
                assert choice.logprobs["tokens"] == tokens[:count]
                assert answer.usage["completion_tokens"] == count


async def test_an_end_token_inside_an_accepted_block_ends_the_answer_and_leaves_no_text(
    tiny: Path, cache_dir: Path
) -> None:
    """Its bias makes it come sooner or later; min_tokens moves it."""
    end = min(open_checkpoint(tiny).text.end_ids)
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running:
        for least in (0, 3, 5):
            fields = {"logit_bias": {str(end): 60}, "min_tokens": least, "temperature": 0, "max_tokens": 12}
            for answer in await in_every_way(running, **fields):
                assert answer.choices[0].finish_reason == "stop"
                assert answer.usage["completion_tokens"] == least + 1
                assert "<|" not in answer.choices[0].text


async def test_no_beginning_of_a_stop_string_is_streamed_and_then_taken_back(tiny: Path, cache_dir: Path) -> None:
    """Stop strings that complete, that begin at every place and complete nowhere, and that begin at the very end."""
    asked = {"max_tokens": 12, "seed": 4, "temperature": 0.9, "ignore_eos": True}
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running:
        whole = (await complete(running, prompt=PROMPT, **asked)).choices[0].text
        places = range(1, len(whole) - 2, max(1, len(whole) // 3))
        for stop in [whole[i : i + 3] for i in places] + [whole[i : i + 3] + "\u2603" for i in places]:
            expected = whole.partition(stop)[0]
            for answer in await in_every_way(running, stop=stop, **asked):
                (choice,) = answer.choices
                assert choice.text == expected
                assert all(expected.startswith(text) for text in choice.texts)


@pytest.mark.parametrize("adjusted", [False, True])
async def test_logprobs_are_the_targets_at_every_emitted_position(adjusted: bool, tiny: Path, cache_dir: Path) -> None:
    """By transformers; what the request changes of the distribution does not show in them."""
    text, model = TextModel(open_checkpoint(tiny).text), load_directory(tiny)
    ids = text.encode_prompt(PROMPT)
    fields: dict[str, Any] = {"max_tokens": 12, "seed": 4, "temperature": 0.8, "ignore_eos": True, "logprobs": 2}
    if adjusted:
        fields |= {"frequency_penalty": 1, "repetition_penalty": 1.3, "logit_bias": {"60": 5}, "top_p": 0.9}
    async with http(Setup(tiny, cache_dir, draft=tiny, precision="float32")) as running:
        answers = await in_every_way(running, **fields)
        chosen = await chosen_ids(running, text, **fields)
    told = [answer.choices[0].logprobs for answer in answers]
    assert all(entries == told[0] for entries in told)
    rows = logits_after(model, [*ids, *chosen])[len(ids) - 1 : -1, : len(text.vocabulary.tokens)]
    expected = special.log_softmax(rows.astype(np.float64), axis=1)
    reference = [row[token] for row, token in zip(expected, chosen, strict=True)]
    assert told[0]["token_logprobs"] == pytest.approx(reference, abs=1e-3)
    for entries, row in zip(told[0]["top_logprobs"], expected, strict=True):
        assert sorted(entries.values())[-2:] == pytest.approx(np.sort(row)[-2:].tolist(), abs=1e-3)


async def chosen_ids(running: Running, text: TextModel, **fields: Any) -> list[int]:
    """Of a plain answer, found by their names."""
    names = await tokens_of(running, **{name: value for name, value in fields.items() if name != "logprobs"})
    return [_id_of(text, name) for name in names]


def _id_of(text: TextModel, name: str) -> int:
    data = bytes.fromhex(name[6:].replace("\\x", "")) if name.startswith("bytes:") else name.encode()
    (found,) = [token for token in text.vocabulary.tokens if text.vocabulary.token_bytes(token) == data]
    return found


async def test_max_tokens_is_exact(tiny: Path, cache_dir: Path) -> None:
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running:
        asked = {"seed": 2, "ignore_eos": True, "logprobs": 0}
        tokens = await tokens_of(running, max_tokens=9, seed=2, ignore_eos=True)
        for count in range(1, 10):
            for answer in await in_every_way(running, max_tokens=count, **asked):
                assert answer.choices[0].logprobs["tokens"] == tokens[:count]
                assert answer.choices[0].finish_reason == "length"
                assert answer.usage["completion_tokens"] == count


async def test_a_seed_repeats_its_answer_whatever_runs_beside_it(tiny: Path, cache_dir: Path) -> None:
    asked = {"prompt": PROMPT, "seed": 9, "temperature": 1.0, "max_tokens": 12}
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running:
        (alone,) = (await complete(running, **asked)).choices
        neighbours = [
            asyncio.create_task(complete(running, prompt=f"{seed} and more", seed=seed, max_tokens=20))
            for seed in range(6)
        ]
        beside = await in_every_way(running, **asked)
        others = [(await task).choices[0].text for task in neighbours]
    assert [answer.choices[0].text for answer in beside] == [alone.text] * len(WAYS)
    assert len(set(others)) > 1


async def test_penalties_hold_under_speculation(tiny: Path, cache_dir: Path) -> None:
    """With a strong frequency penalty no greedy answer repeats itself as it does without one."""
    asked = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "logprobs": 0}
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running:
        free, penalised = [
            await in_every_way(running, **asked, **penalties)
            for penalties in ({}, {"frequency_penalty": 2, "presence_penalty": 2, "repetition_penalty": 2})
        ]
    for answers in (free, penalised):
        assert len({(answer.choices[0].text, str(answer.choices[0].logprobs)) for answer in answers}) == 1
    assert repeats(penalised[0].choices[0].logprobs["tokens"]) < repeats(free[0].choices[0].logprobs["tokens"])


def repeats(tokens: Sequence[str]) -> int:
    return len(tokens) - len(set(tokens))
