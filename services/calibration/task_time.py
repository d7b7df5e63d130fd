"""What a task costs beside its unit's work, as the server at hand spends it."""

from __future__ import annotations

from statistics import median

from hetspec_client.client import Client
from hetspec_client.errors import UnexpectedAnswer

_PROMPT = "Count from one to twenty."
_TOKENS, _REPEATS = 24, 4
_TASKS_A_ROUND = 2  # plain: a pass and a walk


def task_ns(client: Client) -> int:
    """Messages, queues and the orchestrator's own work, of plain decoding. Raises HetspecError."""
    taken = []
    for _ in range(_REPEATS):
        told = client.complete(
            _PROMPT, mode="plain", max_tokens=_TOKENS, temperature=0, ignore_eos=True, prefix_cache=False
        ).statistics
        if told is None:
            raise UnexpectedAnswer("the server tells nothing of what its answers take")
        beside_ns = told.host_ns.get("orchestrator", 0) + told.host_ns.get("queue", 0)
        taken.append(beside_ns // (told.rounds * _TASKS_A_ROUND))
    return int(median(taken[1:]))
