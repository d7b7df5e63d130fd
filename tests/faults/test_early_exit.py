"""A verifier killed while nodes leave its passes early: no token changes, and nodes leave the next one's too."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from orchestrator.policies.mode import Part
from tests.early_exit_artefact import make_early_exit
from tests.models import make_checkpoint
from tests.system import Ask, Processes, Setup

TOKENS = 100
LARGE = frozenset({Part.COST_TREE, Part.NO_DRAFT, Part.CALIBRATION})  # off: trees of their bounds alone
ASKS = [
    Ask(tuple(range(30 + n, 100 + n)), "lever", TOKENS, 0.8 * (n % 2), n, max_nodes=24, disabled=LARGE)
    for n in range(4)
]
PLAIN = [Ask(ask.prompt, "plain", TOKENS, ask.temperature, ask.seed) for ask in ASKS]


async def test_a_verifier_killed_in_the_middle_changes_no_token(tmp_path: Path) -> None:
    target = make_checkpoint(tmp_path / "target", "qwen3", num_hidden_layers=4)
    early_exit = make_early_exit(tmp_path / "exit", target, tmp_path / "cache", layer=1, threshold=-2.2)
    setup = Setup(target, tmp_path / "cache", draft=target, early_exit=early_exit)
    struck: list[int] = []
    async with Processes(setup, tmp_path) as processes:
        expected = [answer.tokens for answer in await processes.generate_all(PLAIN)]

        def strike(tokens: list[int]) -> None:
            if not struck and len(tokens) >= TOKENS // 4:
                struck.append(len(tokens))
                processes.cycle("verifier", signal.SIGKILL)

        answers = await asyncio.gather(*(processes.generate(ask, on_tokens=strike) for ask in ASKS))
        assert [answer.tokens for answer in answers] == expected
        assert struck
        assert any(answer.statistics.rebuilds for answer in answers)
        assert all(answer.statistics.pruned for answer in answers)
        await processes.settle()
        again = await processes.generate_all(ASKS)
    assert [answer.tokens for answer in again] == expected
    assert all(answer.statistics.pruned for answer in again)
