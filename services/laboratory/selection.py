"""Which prompts of a file a study asks: as many of every category, always the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.training.corpus.prompts import Prompt


def of_each_category(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """`count` at equal distances within each category, fewer where it has no more; in the file's order. 0: all."""
    return [prompts[place] for place in places_of_each([prompt.category for prompt in prompts], count)]


def places_of_each(categories: Sequence[str], count: int) -> list[int]:
    """categories: of all prompts."""
    if count == 0:
        return list(range(len(categories)))
    places: dict[str, list[int]] = {}
    for place, category in enumerate(categories):
        places.setdefault(category, []).append(place)
    return sorted(place for found in places.values() for place in _spread(found, count))


def _spread(places: Sequence[int], count: int) -> list[int]:
    taken = min(count, len(places))
    return [places[i * len(places) // taken] for i in range(taken)]
