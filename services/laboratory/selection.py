"""Which prompts of a file a study asks: as many of every category, always the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.training.corpus.prompts import Prompt


def of_each_category(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """`count` at equal distances within each category, fewer where it has no more; in the file's order. 0: all."""
    if count == 0:
        return list(prompts)
    places: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt.category, []).append(place)
    chosen = [_spread(found, count) for found in places.values()]
    return [prompts[place] for place in sorted(place for found in chosen for place in found)]


def _spread(places: Sequence[int], count: int) -> list[int]:
    taken = min(count, len(places))
    return [places[i * len(places) // taken] for i in range(taken)]
