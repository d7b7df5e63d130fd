import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.text.stop import StopMatcher

texts = st.text("ab", max_size=14)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def cut_reference(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Tries every end, then every stop, the longest first."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    """A text in pieces."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(cut_texts(), stop_lists)
def test_any_cutting_into_pieces_gives_the_text_before_the_match_that_ends_first(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopMatcher(stops)
    given_out = "".join([matcher.push(piece) for piece in pieces] + [matcher.flush()])
    assert (given_out, matcher.matched) == cut_reference("".join(pieces), stops)


@given(cut_texts(), stop_lists)
def test_what_is_out_can_never_be_part_of_a_stop_string(pieces: list[str], stops: list[str]) -> None:
    matcher, out, seen = StopMatcher(stops), "", ""
    for piece in pieces:
        out, seen = out + matcher.push(piece), seen + piece
        for stop in stops:  # whatever text follows
            assert cut_reference(seen + stop, stops)[0].startswith(out)


@given(cut_texts(), stop_lists)
def test_only_a_beginning_of_a_stop_string_is_held_back(pieces: list[str], stops: list[str]) -> None:
    matcher, out, seen = StopMatcher(stops), "", ""
    for piece in pieces:
        out, seen = out + matcher.push(piece), seen + piece
        if matcher.matched is None:
            held = seen[len(out) :]
            assert held == "" or any(stop.startswith(held) for stop in stops)


def test_of_matches_that_end_together_the_longest_counts() -> None:
    matcher = StopMatcher(["b", "ab"])
    assert matcher.push("xab") == "x"
    assert matcher.matched == "ab"


def test_nothing_comes_out_after_a_match() -> None:
    matcher = StopMatcher(["\n"])
    assert [matcher.push("one\ntwo"), matcher.push("three"), matcher.flush()] == ["one", "", ""]


def test_an_empty_stop_string_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="stop: "):
        StopMatcher(["a", ""])
