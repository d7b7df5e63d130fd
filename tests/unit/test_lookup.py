"""Prompt lookup against a search through the whole text."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hetspec.drafting.lookup import _OCCURRENCES, MAX_MATCH, MAX_NGRAM, RUN_MATCH, NgramIndex

texts = st.lists(st.integers(0, 3), max_size=60)
paths = st.lists(st.integers(0, 3), max_size=10)


def searched(ids: list[int], path: list[int]) -> list[tuple[int, int]]:
    """Where what ends the path occurred before, and how much of it: the latest of each n-gram, by going through all."""
    tail = (ids + path)[-MAX_MATCH:]

    def are_same(end: int, n: int) -> bool:
        return n <= min(end, len(tail)) and ids[end - n : end] == tail[-n:]

    found: dict[int, int] = {}
    for n in range(1, MAX_NGRAM + 1):
        ends = [end for end in range(len(ids) + 1) if are_same(end, n)][-_OCCURRENCES:]
        found |= {end: max(m for m in range(MAX_MATCH + 1) if are_same(end, m)) for end in ends if end < len(ids)}
    return sorted(found.items(), key=lambda match: (-match[1], -match[0]))


@given(texts, paths, st.integers(1, 6), st.integers(1, 8))
def test_runs_are_those_of_a_search(ids: list[int], path: list[int], count: int, length: int) -> None:
    wanted: list[tuple[list[int], int]] = []
    for end, matched in searched(ids, path):
        run = ids[end : end + length]
        begins_a_known_one = any(known[: len(run)] == run for known, _ in wanted)
        if matched >= RUN_MATCH and not begins_a_known_one and len(wanted) < count:
            wanted.append((run, matched))
    assert NgramIndex(ids).runs(count, length, path) == wanted


@given(texts, paths, st.integers(1, 5))
def test_followers_are_those_of_a_search(ids: list[int], path: list[int], count: int) -> None:
    wanted: dict[int, int] = {}
    for end, matched in searched(ids, path):
        wanted.setdefault(ids[end], matched)
    assert list(NgramIndex(ids).followers(count, path).items()) == list(wanted.items())[:count]


@given(texts, st.lists(st.integers(0, 60)), st.data())
def test_an_index_is_a_function_of_its_tokens_however_they_came(
    ids: list[int], cuts: list[int], data: st.DataObject
) -> None:
    index = NgramIndex()
    ends = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for first, last in pairwise(ends):
        index.extend(ids[first:last])
    assert index.runs(4, 4) == NgramIndex(ids).runs(4, 4)
    length = data.draw(st.integers(0, len(ids)))
    twin = index.copy(length)
    assert twin.runs(4, 4) == NgramIndex(ids[:length]).runs(4, 4)
    twin.extend([1, 2, 1])
    assert index.runs(4, 4) == NgramIndex(ids).runs(4, 4)


def test_longer_matches_come_first_and_of_equals_the_later() -> None:
    index = NgramIndex([1, 2, 3, 9, 5, 2, 3, 8, 4, 2, 3, 7, 1, 2, 3])
    assert index.runs(3, 2) == [([9, 5], 3), ([7, 1], 2), ([8, 4], 2)]
    assert index.followers(3, [9]) == {5: 4}
