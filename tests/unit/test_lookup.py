"""Prompt lookup against a search through the whole text."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hetspec.drafting.lookup import _OCCURRENCES, CONFIDENCE, MAX_NGRAM, MIN_NGRAM, NgramIndex

texts = st.lists(st.integers(0, 3), max_size=60)


def searched(ids: list[int], count: int, length: int) -> list[tuple[list[int], float]]:
    """What followed the latest earlier occurrences of the longest n-grams, by going through them all."""
    found: list[tuple[list[int], float]] = []
    for n in range(min(MAX_NGRAM, len(ids)), MIN_NGRAM - 1, -1):
        ends = [end for end in range(n, len(ids) + 1) if ids[end - n : end] == ids[len(ids) - n :]]
        for end in sorted(ends, reverse=True)[:_OCCURRENCES]:
            run = ids[end : end + length]
            begins_a_known_one = any(known[: len(run)] == run for known, _ in found)
            if run and not begins_a_known_one and len(found) < count:
                found.append((run, CONFIDENCE[n]))
    return found


@given(texts, st.integers(1, 6), st.integers(1, 8))
def test_continuations_are_those_of_a_search(ids: list[int], count: int, length: int) -> None:
    assert NgramIndex(ids).continuations(count, length) == searched(ids, count, length)


@given(texts, st.lists(st.integers(0, 60)), st.data())
def test_an_index_is_a_function_of_its_tokens_however_they_came(
    ids: list[int], cuts: list[int], data: st.DataObject
) -> None:
    index = NgramIndex()
    ends = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    for first, last in pairwise(ends):
        index.extend(ids[first:last])
    assert index.continuations(4, 4) == NgramIndex(ids).continuations(4, 4)
    length = data.draw(st.integers(0, len(ids)))
    twin = index.copy(length)
    assert twin.continuations(4, 4) == NgramIndex(ids[:length]).continuations(4, 4)
    twin.extend([1, 2, 1])
    assert index.continuations(4, 4) == NgramIndex(ids).continuations(4, 4)


def test_longer_matches_come_first_and_are_trusted_more() -> None:
    runs = NgramIndex([1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3]).continuations(2, 2)
    assert runs == [([9, 5], CONFIDENCE[3]), ([8, 1], CONFIDENCE[2])]
    assert sorted(CONFIDENCE) == list(range(MIN_NGRAM, MAX_NGRAM + 1))
    assert list(CONFIDENCE.values()) == sorted(CONFIDENCE.values())
