"""200 generated answers: streamed text is the whole one byte for byte, and both are what the tokens decode to, cut."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from hetspec.rpc.messages import TokenLogprobs, Walk
from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from orchestrator.engine.output import Output
from orchestrator.engine.request import GenerationRequest
from tests.contract.fake_engine import TEMPLATE, FakeEngine, Step
from tests.vocabularies import byte_level, sentencepiece

PIECES = (
    "Wind ",
    "spät",
    "日本語",
    "русский",
    "😀",
    "👩‍👩‍👧",
    "e\u0301",
    "n\u0303o",
    "the fox ",
    "\n",
    " 12",
    "ab",
    "aab",
    "\u200d",
    "🇩🇪",
)
MODELS = {
    "bytes": TextModel(TextSpec(byte_level("smollm").tokenizer.to_str(), TEMPLATE, end_ids=(2,))),
    "pieces": TextModel(TextSpec(sentencepiece().tokenizer.to_str(), TEMPLATE, bos_id=1, end_ids=(2,), add_bos=True)),
}
CASES = 100  # of each tokenizer


@dataclass(frozen=True)
class Case:
    """What the model says (its ids, the end token last), and what the client asks."""

    ids: tuple[int, ...]
    stop: tuple[str, ...]
    max_tokens: int
    seed: int

    @classmethod
    def of(cls, model: TextModel, seed: int) -> Case:
        rng = random.Random(seed)
        text = "".join(rng.choices(PIECES, k=rng.randint(3, 9)))
        ids = (*model.encode(text), *model.spec.end_ids)
        stops = [_slice(text, rng) for _ in range(rng.randint(0, 3))]
        if stops and rng.random() < 0.5:
            stops.append(stops[0] + "☃")  # begins as another does, and is never said
        return cls(ids, tuple(stops), rng.choice([*range(1, 10), len(ids) + 5]), seed)

    def expected(self, model: TextModel, prompt_ids: Sequence[int]) -> tuple[str, str]:
        """Text and finish reason, from all tokens decoded at once behind the prompt's."""
        ids = self.ids[: self.max_tokens]
        has_ended = ids[-1] in model.spec.end_ids
        text = model.decode((*prompt_ids, *ids[: len(ids) - has_ended])).removeprefix(model.decode(prompt_ids))
        ends = [(at + len(stop), at) for stop in self.stop if (at := text.find(stop)) >= 0]
        if ends:
            return text[: min(ends)[1]], "stop"
        return text, "stop" if has_ended else "length"


def _slice(text: str, rng: random.Random) -> str:
    begin = rng.randrange(len(text))
    return text[begin : begin + rng.randint(1, 5)]


class Speaker:
    """Says a case's tokens in blocks of random size, through the engine's own output."""

    def __init__(self, model: TextModel, case: Case) -> None:
        self._model = model
        self._case = case
        self._blocks = itertools.count()

    def __call__(self, request: GenerationRequest) -> Iterable[Step]:
        rng = random.Random(f"{self._case.seed} {next(self._blocks)}")
        output, left = Output(request, self._model), list(self._case.ids[: request.max_tokens])
        while left:
            block = [left.pop(0) for _ in range(min(rng.randint(1, 5), len(left)))]
            emission = output.push(Walk(tuple(block), (), tuple(TokenLogprobs(-float(token)) for token in block)))
            yield emission
            if emission.finish_reason is not None:
                return


def engine_of(model: TextModel, case: Case) -> FakeEngine:
    engine = FakeEngine(Speaker(model, case))
    engine.text = model
    engine.description.vocab_size = 1 + max(model.vocabulary.tokens)
    return engine


def choice_text(choice: dict[str, Any]) -> str:
    for holder in ("message", "delta"):
        if holder in choice:
            return choice[holder].get("content") or ""
    return choice["text"]


async def ask(client: Any, path: str, case: Case) -> tuple[str, str, int]:
    """Text, finish reason and completion tokens of the whole answer; the same of a stream, checked against it."""
    prompt: dict[str, Any] = {"prompt": "x"} if "chat" not in path else {"messages": [{"role": "user", "content": "x"}]}
    body = {"stop": list(case.stop) or None, "max_tokens": case.max_tokens, "seed": case.seed} | prompt
    whole = (await client.post(path, json=body)).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = (await client.post(path, json=body | options)).text.split("\n")
    chunks = [json.loads(line[6:]) for line in lines if line and line != "data: [DONE]"]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    text, reason = choice_text(whole["choices"][0]), whole["choices"][0]["finish_reason"]
    assert "".join(map(choice_text, choices)).encode() == text.encode()
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == [reason]
    assert chunks[-1]["usage"] == whole["usage"]
    return text, reason, whole["usage"]["completion_tokens"]


@pytest.mark.parametrize("name", MODELS)
async def test_streamed_and_whole_answers_are_what_the_tokens_decode_to(name: str, connect: Any) -> None:
    model, ended = MODELS[name], set()
    for seed in range(CASES):
        case = Case.of(model, seed)
        engine = engine_of(model, case)
        async with connect(engine) as client:
            path = ("/v1/completions", "/v1/chat/completions")[seed % 2]
            text, reason, count = await ask(client, path, case)
        assert (text, reason) == case.expected(model, engine.requests[0].prompt_ids), case
        assert count <= case.max_tokens
        ended.add((reason, count == case.max_tokens))
    assert len(ended) >= 3  # by a stop string or the end, by length


@pytest.mark.parametrize("name", MODELS)
async def test_a_stop_string_at_every_offset_ends_the_text_there(name: str, connect: Any) -> None:
    model = MODELS[name]
    text = "Wind 日本 e\u0301😀 the fox"
    for begin in range(len(text)):
        case = Case((*model.encode(text), *model.spec.end_ids), (text[begin : begin + 2],), 64, begin)
        engine = engine_of(model, case)
        async with connect(engine) as client:
            told, reason, _ = await ask(client, "/v1/completions", case)
        assert (told, reason) == case.expected(model, engine.requests[0].prompt_ids)
