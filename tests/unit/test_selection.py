"""A study's prompts: as many of each category, spread over the file, the same ones every time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hetspec.training.corpus.prompts import Prompt
from laboratory.selection import of_each_category

PROMPTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=40).map(
    lambda categories: [Prompt((place,), category) for place, category in enumerate(categories)]
)


@given(PROMPTS, st.integers(1, 6))
def test_every_category_gives_so_many_or_all_it_has_in_the_files_order(prompts: list[Prompt], count: int) -> None:
    chosen = of_each_category(prompts, count)
    there = Counter(prompt.category for prompt in prompts)
    assert Counter(prompt.category for prompt in chosen) == {name: min(count, n) for name, n in there.items()}
    places = [prompt.ids[0] for prompt in chosen]
    assert places == sorted(set(places))


def test_they_lie_at_equal_distances() -> None:
    prompts = [Prompt((place,), "ab"[place % 2]) for place in range(40)]
    assert [prompt.ids[0] for prompt in of_each_category(prompts, 4)] == [0, 1, 10, 11, 20, 21, 30, 31]


def test_zero_is_all() -> None:
    prompts = [Prompt((place,), "a") for place in range(5)]
    assert of_each_category(prompts, 0) == prompts
