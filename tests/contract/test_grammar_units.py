"""Sampler and drafter with grammars: what they tell, item by item, and that they need no memory for it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drafter.engine import DrafterEngine
from hetspec.decoding.constraint import Constraint, Grammar, GrammarKind, Past
from hetspec.decoding.grammar import Grammars
from hetspec.decoding.history import History
from hetspec.decoding.matcher import Matchers
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import (
    Draft,
    DraftItem,
    DraftPolicy,
    ErrorCode,
    Rows,
    SessionUpdate,
    UnitError,
    Walk,
    WalkItem,
    rows_to_bytes,
)
from hetspec.text.text_spec import TextSpec
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_GRAMMAR, DRAFT_SOURCE_LOOKUP
from sampler.engine import SamplerEngine
from tests.vocabularies import byte_level

VOCABULARY = byte_level("smollm")
SIZE, HIDDEN = len(VOCABULARY.tokens), 4
END_ID = 2
NO_TREE = TokenTree()
ROWS = np.random.default_rng(0).normal(0, 2, (99, HIDDEN)).astype(np.float32)

DIGITS = Grammar(GrammarKind.REGEX, "[0-9]{3}")
DATE = Grammar(GrammarKind.REGEX, "(on|off) 2024-[0-9]{2}")
BROKEN = Grammar(GrammarKind.REGEX, "(")
UNWIELDY = Grammar(  # compiles, and is given up behind the first bracket
    GrammarKind.JSON_SCHEMA,
    json.dumps({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(1000)}}),
)


def encode(text: str) -> list[int]:
    ids: list[int] = VOCABULARY.tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def decode(tokens: Sequence[int]) -> str:
    text: str = VOCABULARY.tokenizer.decode(list(tokens))
    return text


def matchers() -> Matchers:
    return Matchers(Grammars(TextSpec(VOCABULARY.tokenizer.to_str(), end_ids=(END_ID,)), SIZE))


class RandomHead:
    vocab_size, hidden_size = SIZE, HIDDEN

    def __init__(self) -> None:
        self._weights = np.random.default_rng(1).normal(0, 1, (SIZE, HIDDEN)).astype(np.float32)

    def logits(self, hidden: Rows) -> NDArray[np.float32]:
        return np.stack([(self._weights * row).sum(axis=1) for row in hidden])


def sampler(known: Matchers | None) -> SamplerEngine:
    return SamplerEngine(RandomHead(), np.array([], np.intp), lambda: None, known)


def walk_item(grammar: Grammar | None, output: Sequence[int] = (), tree: TokenTree = NO_TREE) -> WalkItem:
    """At the place behind the output: the rows are the same for everybody."""
    start = len(output)
    return WalkItem(
        "s",
        rows_to_bytes(ROWS[start : start + 1 + len(tree)]),
        tree,
        Sampling(0.8),
        NoiseKey(4),
        start,
        max_tokens=99,
        end_ids=(END_ID,),
        constraint=Constraint(grammar=grammar),
        past=Past(output=tuple(output)),
    )


def walked(engine: SamplerEngine, *items: WalkItem) -> list[Walk | UnitError]:
    return list(engine.run(items, lambda: False).items)


def say(engine: SamplerEngine, grammar: Grammar) -> list[int]:
    """Token by token, to the end."""
    output: list[int] = []
    while output[-1:] != [END_ID]:
        (walk,) = walked(engine, walk_item(grammar, output))
        assert isinstance(walk, Walk)
        output += walk.tokens
    return output


def test_walk_stays_within_its_grammar_and_its_neighbour_is_as_if_alone() -> None:
    engine = sampler(matchers())
    alone = walked(engine, walk_item(None))
    with_grammar, neighbour = walked(engine, walk_item(DIGITS), walk_item(None))
    assert isinstance(with_grammar, Walk)
    assert decode(with_grammar.tokens).isdigit()
    assert neighbour == alone[0]


def test_replica_that_never_saw_the_session_goes_on_as_the_one_that_did() -> None:
    known = sampler(matchers())
    said = say(known, DATE)
    assert decode(said[:-1])[:2] in ("on", "of")
    for length in range(len(said)):
        assert walked(sampler(matchers()), walk_item(DATE, said[:length])) == walked(
            known, walk_item(DATE, said[:length])
        )


def test_drafted_document_is_accepted_whole_in_one_walk() -> None:
    said = say(sampler(matchers()), DATE)
    (walk,) = walked(sampler(matchers()), walk_item(DATE, tree=TokenTree.chain(said)))
    assert isinstance(walk, Walk)
    assert list(walk.tokens) == said
    assert len(walk.accepted) == len(said)


def test_dead_end_is_one_items_own() -> None:
    """Met at once by the third item, in the middle of its walk by the second."""
    engine, begun = sampler(matchers()), encode('{"')
    (sound, in_walk, at_once, refused) = walked(
        engine,
        walk_item(DIGITS),
        walk_item(UNWIELDY, tree=TokenTree.chain(begun)),
        walk_item(UNWIELDY, begun),
        walk_item(BROKEN),
    )
    assert isinstance(sound, Walk)
    for dead in (in_walk, at_once):
        assert isinstance(dead, UnitError)
        assert dead.code is ErrorCode.DEAD_END
        assert "too complex" in dead.message
    assert isinstance(refused, UnitError)
    assert (refused.code, refused.message) == (ErrorCode.INVALID, "s: unclosed group")


def test_output_that_breaks_its_grammar_is_invalid() -> None:
    (refused,) = walked(sampler(matchers()), walk_item(DIGITS, encode("1x")))
    assert isinstance(refused, UnitError)
    assert refused.code is ErrorCode.INVALID
    assert "past.output[1]" in refused.message


def test_grammar_without_a_vocabulary_is_refused() -> None:
    (refused,) = walked(sampler(None), walk_item(DIGITS))
    assert isinstance(refused, UnitError)
    assert (refused.code, "constraint.grammar" in refused.message) == (ErrorCode.INVALID, True)


# --- drafts

BOTH = (DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_GRAMMAR)


def drafted(prompt: str, output: str, grammar: Grammar | None, width: int = 4, depth: int = 12) -> Draft | UnitError:
    tokens = encode(prompt + output)
    update = SessionUpdate("s", 1, 0, History().hash, append=tuple(tokens))
    item = DraftItem(
        update,
        DraftPolicy(30, depth, width, BOTH),
        Sampling(),
        NoiseKey(0),
        constraint=Constraint(grammar=grammar),
        past=Past(output=tuple(encode(output))),
    )
    (result,) = DrafterEngine(SIZE, None, matchers()).run([item], lambda: False).items
    return result


def runs(draft: Draft | UnitError, source: int) -> set[str]:
    """The texts of the longest paths whose nodes are all of one source."""
    assert isinstance(draft, Draft)
    tree = draft.tree
    ends = [n for n in range(len(tree)) if n not in tree.parents and draft.sources[n] == source]
    return {decode([tree.tokens[node] for node in tree.path(end)]) for end in ends}


def test_what_must_follow_is_drafted_with_certainty() -> None:
    for width in (1, 4):
        draft = drafted("x", "off", DATE, width)
        assert runs(draft, DRAFT_SOURCE_GRAMMAR) == {" 2024-"}
        assert isinstance(draft, Draft)
        assert set(draft.probabilities) == {1.0}


def test_lookup_is_cut_at_the_first_token_that_the_grammar_refuses() -> None:
    prompt = "1234z 1234z "
    assert runs(drafted(prompt, "12", None), DRAFT_SOURCE_LOOKUP) == {"34z 1234z 12"}
    assert runs(drafted(prompt, "12", Grammar(GrammarKind.REGEX, "[0-9]*")), DRAFT_SOURCE_LOOKUP) == {"34"}


def test_no_draft_goes_deeper_than_asked_for() -> None:
    draft = drafted("x", "off", DATE, depth=2)
    assert isinstance(draft, Draft)
    assert max(draft.tree.depths()) == 2


def test_broken_grammar_is_invalid_to_a_drafter_too() -> None:
    refused = drafted("x", "", BROKEN)
    assert isinstance(refused, UnitError)
    assert refused.code is ErrorCode.INVALID
