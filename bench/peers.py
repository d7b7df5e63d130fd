"""Plain decoding against transformers and llama.cpp: same weights, same prompts, two compute threads, in turn."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.system import ROOT, System, running

REPEATS = 5
NEW_TOKENS = 128
PROMPT_LENGTHS = (64, 512)


class Peer:
    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peer", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        )  # fmt: skip
        if self._line() != "ready":
            raise RuntimeError(f"{name} did not start")

    def measure(self, prompt: list[int], new: int) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "new": new}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, float] = json.loads(self._line())
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@dataclass(frozen=True, slots=True)
class Row:
    """Medians: first_token_s and tokens_per_s by prompt length."""

    name: str
    first_token_s: dict[int, float]
    tokens_per_s: dict[int, float]


def measure(prompts: dict[int, list[int]], report: Any = print) -> list[Row]:
    """prompts: token ids by length. Every repeat asks all contestants, one after the other."""
    names = ["transformers", *(["llama.cpp"] if importlib.util.find_spec("llama_cpp") else [])]
    with running({"HETSPEC_THREADS": "2", "HETSPEC_PREFIX_TOKENS": "0"}) as system, _peers(names) as peers:
        contestants = {"hetspec": lambda p, n: _ask(system, p, n)} | {
            name: peer.measure for name, peer in peers.items()
        }
        seen: dict[str, dict[int, list[dict[str, float]]]] = {n: {k: [] for k in prompts} for n in contestants}
        for repeat in range(REPEATS + 1):
            for name, ask in contestants.items():
                for length, prompt in prompts.items():
                    answer = ask(prompt, NEW_TOKENS)
                    if repeat:  # the first round warms up
                        seen[name][length].append(answer)
            report(f"peers: repeat {repeat} of {REPEATS}")
    return [
        Row(
            name,
            {length: median(a["first_token_s"] for a in answers) for length, answers in by_length.items()},
            {length: median(a["tokens_per_s"] for a in answers) for length, answers in by_length.items()},
        )
        for name, by_length in seen.items()
    ]


def _ask(system: System, prompt: list[int], new: int) -> dict[str, float]:
    answer = system.complete(prompt, new, hetspec={"mode": "plain"})
    if answer.completion_tokens != new:
        raise RuntimeError(f"the completion ended after {answer.completion_tokens} tokens: choose another prompt")
    return {"first_token_s": answer.first_token_s, "tokens_per_s": answer.tokens_per_s}


@contextmanager
def _peers(names: list[str]) -> Iterator[dict[str, Peer]]:
    peers = {name: Peer(name) for name in names}
    try:
        yield peers
    finally:
        for peer in peers.values():
            peer.close()


def table(rows: list[Row]) -> str:
    lengths = list(rows[0].first_token_s)
    head = [
        "",
        *(f"first token, {n} prompt tokens (ms)" for n in lengths),
        *(f"tokens/s at context {n}" for n in lengths),
    ]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        first = [f"{row.first_token_s[n] * 1e3:.0f}" for n in lengths]
        lines.append([row.name, *first, *(f"{row.tokens_per_s[n]:.1f}" for n in lengths)])
    ours = rows[0]
    for row in rows[1:]:
        first = [f"{row.first_token_s[n] / ours.first_token_s[n]:.2f}x" for n in lengths]
        rates = [f"{ours.tokens_per_s[n] / row.tokens_per_s[n]:.2f}x" for n in lengths]
        lines.append([f"hetspec is faster than {row.name} by", *first, *rates])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
