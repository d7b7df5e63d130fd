"""Vocabularies of a draft and its target: the same ids, or a refusal with an example."""

from __future__ import annotations

import json

import pytest

from hetspec.drafting.vocabulary_check import check_vocabularies
from hetspec.text.vocabulary import Vocabulary


def vocabulary(*tokens: str, holes: tuple[int, ...] = ()) -> Vocabulary:
    vocab = {token: i for i, token in enumerate(tokens) if i not in holes}
    return Vocabulary(json.dumps({"model": {"type": "WordLevel", "vocab": vocab}}))


LETTERS = vocabulary("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("draft", "size"),
    [
        (LETTERS, 4),
        (LETTERS, 64),  # padded
        (vocabulary("a", "b", "c", "d", "more"), 8),  # tokens that the target lacks
        (vocabulary("a", "b", "c", "d", holes=(1, 3)), 4),  # tokens that the draft lacks
    ],
)
def test_padding_and_ids_of_one_side_only_are_allowed(draft: Vocabulary, size: int) -> None:
    check_vocabularies(LETTERS, draft, size)


def test_an_id_that_means_two_things_is_refused_with_the_first_example() -> None:
    with pytest.raises(ValueError, match=r"^vocabularies differ: id 1 is 'b' to the target and 'x' to the draft$"):
        check_vocabularies(LETTERS, vocabulary("a", "x", "c", "y"), 4)


def test_a_draft_that_is_too_small_is_refused_with_the_largest_id() -> None:
    with pytest.raises(ValueError, match=r"^vocabularies differ: id 3 is 'd' to the target, the draft has 3 ids$"):
        check_vocabularies(LETTERS, vocabulary("a", "b", "c"), 3)
