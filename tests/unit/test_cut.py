"""Ending another thread's wait: no order of telling and waiting is missed."""

from __future__ import annotations

import threading

import pytest

from hetspec.model.cut import Cut


def test_a_wait_ends_when_it_is_told() -> None:
    cut = Cut()
    waiting = threading.Thread(target=cut.wait, args=(60,))
    waiting.start()
    cut.tell()
    waiting.join(10)
    assert not waiting.is_alive()
    assert cut.told


@pytest.mark.parametrize("told_first", [True, False])
def test_the_action_is_done_once_whatever_comes_first(told_first: bool) -> None:
    cut, done = Cut(), []
    if told_first:
        cut.tell()
    with cut.ends(lambda: done.append(1)):
        cut.tell()
        cut.tell()
    assert done == [1]


def test_a_wait_that_is_over_is_left_alone() -> None:
    cut, done = Cut(), []
    with cut.ends(lambda: done.append(1)):
        pass
    cut.tell()
    assert done == []
