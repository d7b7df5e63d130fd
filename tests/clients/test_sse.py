from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hetspec_client.sse import EventDecoder

TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))
EVENTS = st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=5)


def written(events: list[list[str]], end: str) -> bytes:
    """As the standard writes them: a field a line, a blank line after each event, comments between."""
    lines = [line for event in events for line in (": ping", *(f"data: {text}" for text in event), "")]
    return "".join(line + end for line in lines).encode()


@given(EVENTS, st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(0, 200)))
def test_events_are_the_same_however_the_bytes_are_cut(events, end, cuts):
    stream, decoder = written(events, end), EventDecoder()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[begin:stop] for begin, stop in pairwise(places)]
    decoded = [data.decode() for piece in pieces for data in decoder.push(piece)]
    assert decoded == ["\n".join(event) for event in events]


def test_only_line_feeds_end_lines():
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    assert [*EventDecoder().push(f"data: {text}\n\n".encode())] == [text.encode()]


def test_other_fields_and_unfinished_events_are_not_data():
    stream = b"event: x\nid: 1\nretry: 5\ndata:no space\ndata:  two\n\ndata: unfinished\n"
    assert [*EventDecoder().push(stream)] == [b"no space\n two"]
