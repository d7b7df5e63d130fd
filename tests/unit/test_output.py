"""Output: the same cut for text, ids, logprobs and finish reason, however the tokens fall into rounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.messages import TokenLogprobs, Walk
from hetspec.text.tokenizer import TextModel
from orchestrator.engine.output import Output
from orchestrator.engine.request import EmittedToken, GenerationRequest, Mode
from tests import toy

TEXT = TextModel(toy.text_spec())


def cut(
    ids: list[int], stops: tuple[str, ...], max_tokens: int, min_tokens: int, ignore_eos: bool
) -> tuple[str, list[int], str]:
    """The oracle: token by token over the whole text so far."""
    text = ""
    for count, token in enumerate(ids, start=1):
        if token == toy.END_ID and not ignore_eos:
            return text, ids[:count], "stop"
        text += toy.LETTERS[token] if token != toy.END_ID else ""
        ending = [stop for stop in stops if text.endswith(stop) and token != toy.END_ID]
        if ending and count > min_tokens:
            return text[: len(text) - len(max(ending, key=len))], ids[:count], "stop"
        if count == max_tokens:
            return text, ids[:count], "length"
    raise AssertionError("neither ended nor full")


letters = st.integers(0, 2)
stop_strings = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4).map(tuple)


@given(
    ids=st.lists(letters | st.just(toy.END_ID) | letters, min_size=1, max_size=20),
    stops=stop_strings,
    lengths=st.lists(st.integers(1, 6), min_size=20, max_size=20),
    with_logprobs=st.booleans(),
    min_tokens=st.just(0) | st.integers(0, 20),
    ignore_eos=st.booleans(),
)
def test_cut_is_that_of_the_whole_text(
    ids: list[int],
    stops: tuple[str, ...],
    lengths: list[int],
    with_logprobs: bool,
    min_tokens: int,
    ignore_eos: bool,
) -> None:
    least = min(min_tokens, len(ids))
    request = GenerationRequest(
        "r", (1,), Sampling(), NoiseKey(0), len(ids), Mode.TREE, 8, 4, stops, min_tokens=least, ignore_eos=ignore_eos
    )
    output = Output(request, TEXT)
    text, tokens, reason, start = "", list[EmittedToken](), None, 0
    for length in lengths:
        block = tuple(ids[start : start + length])
        start += length
        logprobs = tuple(TokenLogprobs(-float(token)) for token in block) if with_logprobs else ()
        emission = output.push(Walk(block, (), logprobs))
        text += emission.text
        tokens += emission.tokens
        if (reason := emission.finish_reason) is not None:
            break
    assert (text, [token.id for token in tokens], reason) == cut(ids, stops, len(ids), least, ignore_eos)
    assert [t.logprobs for t in tokens] == [TokenLogprobs(-float(t.id)) if with_logprobs else None for t in tokens]
