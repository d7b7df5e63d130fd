import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.history import History

ids_lists = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=6), max_size=6)


@given(ids_lists)
def test_the_hash_is_blake2b_of_the_ids_however_they_came(chunks: list[list[int]]) -> None:
    history = History()
    for chunk in chunks:
        history.extend(chunk)
    flat = [token for chunk in chunks for token in chunk]
    digest = hashlib.blake2b(struct.pack(f"<{len(flat)}I", *flat), digest_size=8).digest()
    assert history.hash == int.from_bytes(digest, "little") == History(flat).hash
    assert list(history) == flat
    assert len(history) == len(flat)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 5), st.integers(10, 99))
def test_one_other_id_gives_another_hash(ids: list[int], where: int, other: int) -> None:
    changed = list(ids)
    changed[where % len(ids)] = other
    assert History(changed).hash != History(ids).hash
    assert History([*ids, other]).hash != History(ids).hash


def test_a_slice_gives_the_ids_themselves() -> None:
    assert History(range(5))[1:3] == [1, 2]


def test_an_id_that_is_no_unsigned_32_bit_number_is_refused_and_leaves_no_trace() -> None:
    history = History([1])
    before = history.hash
    with pytest.raises(OverflowError):
        history.extend([-1])
    assert list(history) == [1]
    assert history.hash == before
