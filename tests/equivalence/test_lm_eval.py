"""lm-eval, unmodified, against a float32 server: it finds the loglikelihoods that transformers finds in process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from scipy import special

from tests.contract.running import Running
from tests.equivalence.http import http
from tests.equivalence.reference import load_directory, logits_after
from tests.system import Setup

TASK = Path(__file__).parent / "lm_eval" / "proverbs.yaml"
EVALUATE = TASK.with_name("evaluate.py")
PROVERBS = {
    "The quick brown fox jumps over the": [" lazy dog", " moon", " fence at night"],
    "Wer reitet so spät durch Nacht und": [" Wind?", " Nebel 日本語 😀"],
    "A stitch in time saves": [" nine", " naïve café"],
    "for i in range(10):": ["\n    print(add(i, 12345))", "\n    return"],
    "Still waters run": [" deep", " x", " dry in summer, said the fox to the dog"],
}
TOLERANCE = 1e-3  # a token


def write_task(directory: Path, reference: Reference) -> None:
    """Beside the proverbs' own endings, what the model itself would say, where that is a text that stays one token."""
    documents = [
        {"beginning": beginning, "endings": endings + reference.greedy_endings(beginning)}
        for beginning, endings in PROVERBS.items()
    ]
    (directory / TASK.name).write_bytes(TASK.read_bytes())
    (directory / "proverbs.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))


async def evaluate(running: Running, tokenizer: Path, directory: Path) -> list[Any]:
    """(requests, responses) of each document."""
    offline = dict.fromkeys(("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EVALUATE), running.url, str(tokenizer)),
        cwd=directory,
        env=os.environ | offline | {"HF_HOME": str(directory / "home"), "OPENAI_API_KEY": "none"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    samples: list[Any] = json.loads(told.splitlines()[-1])
    return samples


class Reference:
    """(logprob of the continuation, whether greedy decoding says it, tokens)."""

    def __init__(self, checkpoint: Path) -> None:
        self._model = load_directory(checkpoint)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)

    def greedy_endings(self, beginning: str) -> list[str]:
        ids = self._tokenizer.encode(beginning)
        best = int(logits_after(self._model, ids)[-1, : len(self._tokenizer)].argmax())
        ending = self._tokenizer.decode([best])
        return [ending] if self._tokenizer.encode(beginning + ending) == [*ids, best] else []

    def __call__(self, context: str, continuation: str) -> tuple[float, bool, int]:
        """As lm-eval cuts it: the context's own ids, then what the ids of both have behind so many."""
        ids = self._tokenizer.encode(context)
        begin = len(ids)
        ids += self._tokenizer.encode(context + continuation)[begin:]
        rows = logits_after(self._model, ids)[begin - 1 : -1, : len(self._tokenizer)].astype(np.float64)
        logprobs, target = special.log_softmax(rows, axis=1), ids[begin:]
        total = float(sum(row[token] for row, token in zip(logprobs, target, strict=True)))
        return total, logprobs.argmax(axis=1).tolist() == target, len(target)


@pytest.mark.timeout(900)  # it imports half of the field before it begins
async def test_loglikelihoods_are_those_computed_in_process(tiny: Path, cache_dir: Path, tmp_path: Path) -> None:
    reference = Reference(tiny)
    write_task(tmp_path, reference)
    async with http(Setup(tiny, cache_dir, draft=tiny, precision="float32")) as running:
        samples = await evaluate(running, tiny, tmp_path)
    flags = []
    for requests, responses in samples:
        for (context, continuation), ((logprob, says_greedy),) in zip(requests, responses, strict=True):
            expected, is_greedy, count = reference(context, continuation)
            assert logprob == pytest.approx(expected, abs=TOLERANCE * count)
            assert says_greedy == is_greedy
            flags.append(is_greedy)
    assert len(flags) >= sum(map(len, PROVERBS.values()))
    assert any(flags)
