"""What a grammar allows, against brute force over every short text."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence

import jsonschema
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import Constraint, DeadEnd, Grammar, GrammarKind, Past
from hetspec.decoding.grammar import MAX_SOURCE_BYTES, GrammarError, Grammars
from hetspec.decoding.matcher import GrammarMatcher, Matchers
from hetspec.decoding.sampling import Sampling
from hetspec.text.text_spec import TextSpec
from hetspec.text.vocabulary import Vocabulary
from tests import toy
from tests.vocabularies import byte_level, sentencepiece

TOKENS = ["a", "b", "c", "ab", "bc", "abc", "ca", "</s>", "<stop>"]
END_IDS = (7, 8)
PADDING = 3


def letters() -> Grammars:
    """Three letters, some joined, and two end tokens."""
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("c", "a")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(TOKENS)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>", "<stop>"])
    return Grammars(TextSpec(tokenizer.to_str(), end_ids=END_IDS), len(TOKENS) + PADDING)


LETTERS = letters()
BYTES = byte_level("smollm")
BYTES_SPEC = TextSpec(BYTES.tokenizer.to_str(), end_ids=(0, 2))
BYTE_LEVEL = Grammars(BYTES_SPEC, len(BYTES.tokens))


def matcher(grammars: Grammars, grammar: Grammar, output: Sequence[int] = ()) -> GrammarMatcher:
    return Matchers(grammars).at("s", grammar, tuple(output))


def regex(source: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, source)


def schema(source: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(source))


def lark(source: str) -> Grammar:
    return Grammar(GrammarKind.LARK, source)


def ids(mask: Iterable[bool]) -> set[int]:
    return set(np.flatnonzero(np.array(list(mask))).tolist())


# --- against every text of a small language

Language = tuple[str, frozenset[str]]  # a regex, and every text that it matches


def joined(two: tuple[Language, Language]) -> Language:
    (one, ones), (other, others) = two
    return one + other, frozenset(a + b for a in ones for b in others)


languages = st.recursive(
    st.sampled_from(["a", "b", "c", "ab", "ca"]).map(lambda text: (text, frozenset({text}))),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(joined),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}|{two[1][0]})", two[0][1] | two[1][1])),
        inner.map(lambda one: (f"({one[0]})?", one[1] | {""})),
        inner.map(lambda one: (f"({one[0]}){{1,2}}", one[1] | joined((one, one))[1])),
    ),
    max_leaves=6,
)


def expected(texts: frozenset[str], prefix: str) -> set[int]:
    """Tokens by which `prefix` stays the beginning of a text, and the end tokens where it is one."""
    going_on = {i for i, t in enumerate(TOKENS[:7]) if any(text.startswith(prefix + t) for text in texts)}
    return going_on | (set(END_IDS) if prefix in texts else set())


def is_forced(texts: frozenset[str], prefix: str) -> bool:
    """Whether every text that begins so goes on with the same letter."""
    longer = {text for text in texts if text.startswith(prefix)}
    return prefix not in longer and len({text[len(prefix)] for text in longer}) == 1


def walk_all(found: GrammarMatcher, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], set[int]]]:
    """Every path that the masks leave open, with what may follow it."""
    allowed = ids(found.allowed(path))
    yield path, allowed
    for token in allowed - set(END_IDS):
        yield from walk_all(found, (*path, token))


@given(languages)
@settings(max_examples=80, deadline=None)
def test_allowed_tokens_are_those_that_some_text_of_the_language_goes_on_with(language: Language) -> None:
    source, texts = language
    assume(len(texts) <= 40)
    assert all(re.fullmatch(source, text) for text in texts)
    complete = set()
    for path, allowed in walk_all(matcher(LETTERS, regex(source))):
        prefix = "".join(TOKENS[token] for token in path)
        if is_forced(texts, prefix):  # of several ways to write what must follow, the tokenizer's own may be all
            assert allowed
            assert allowed <= expected(texts, prefix)
        else:
            assert allowed == expected(texts, prefix)
        if allowed & set(END_IDS):
            complete.add(prefix)
    assert complete == texts


def test_every_document_of_a_schema_and_no_other_can_be_written() -> None:
    source = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, "x", None]}, "c": {"const": [True]}},
        "required": ["b"],
        "additionalProperties": False,
    }
    choices = [(None, True, False), (1, "x", "null"), (None, [True])]
    documents = []
    for a, b, c in itertools.product(*choices):
        document = {"a": a, "b": None if b == "null" else b, "c": c}
        documents.append({k: v for k, v in document.items() if v is not None or k == "b"})
    for document in documents:
        jsonschema.validate(document, source)
    vocabulary = Vocabulary(BYTES_SPEC.tokenizer_json)
    written = set()
    pending: list[tuple[int, ...]] = [()]
    found = matcher(BYTE_LEVEL, schema(source))
    while pending:
        path = pending.pop()
        allowed = ids(found.allowed(path))
        if allowed & {0, 2}:
            assert {0, 2} <= allowed
            written.add(b"".join(map(vocabulary.token_bytes, path)).decode())
        pending += [(*path, token) for token in allowed - {0, 2}]
    assert written == {json.dumps(document) for document in documents}


def test_json_has_no_white_space_but_what_dumps_writes() -> None:
    text = json.dumps({"a": [1, {"b": "c d"}], "e": {}})
    tokens = BYTES.tokenizer.encode(text, add_special_tokens=False).ids
    found = matcher(BYTE_LEVEL, schema({"type": "object"}))
    assert found.follows(tokens) == len(tokens)
    for bad in (text.replace(", ", ","), text.replace(": ", ":"), text.replace("{", "{ ", 1), " " + text):
        wrong = BYTES.tokenizer.encode(bad, add_special_tokens=False).ids
        assert found.follows(wrong) < len(wrong)


def test_top_level_of_any_object_is_an_object() -> None:
    first = {BYTES.tokens[token][0] for token in ids(matcher(BYTE_LEVEL, schema({"type": "object"})).allowed())}
    assert first == {"{"}


# --- states

SEVERAL = (
    regex("(ab|a)*c[abc]{2,5}(bca)?"),
    lark('start: (word ",")* word\nword: /[abc]{1,4}/'),
    schema({"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}, "b": {"type": "integer"}}}),
    schema({"type": "object"}),
    lark('start: (word "-")+ /[a-c]/\nword[max_tokens=3]: /[abc]+/'),
    lark('start: (any "b")* "c"\nany[lazy]: /[a-c]*/ "ca"'),
)
VOCABULARIES = {
    "byte level": BYTE_LEVEL,
    "SentencePiece": Grammars(TextSpec(sentencepiece().tokenizer.to_str(), end_ids=(2,)), 512),
}


@pytest.mark.parametrize("name", VOCABULARIES)
@given(st.sampled_from(SEVERAL), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_masks_are_a_function_of_the_tokens_alone(name: str, grammar: Grammar, seed: int) -> None:
    """Read one by one with whatever questions in between, as a branch, or all at once by another process."""
    grammars, rng = VOCABULARIES[name], random.Random(seed)
    matchers, output = Matchers(grammars), []
    for _ in range(12):
        followed = matchers.at("s", grammar, tuple(output))
        for _ in range(rng.randrange(3)):
            branch = rng.choice(sorted(ids(followed.allowed())))
            rng.choice((followed.forced, lambda at=branch, of=followed: of.allowed([at])))()
        mask = followed.allowed()
        assert np.array_equal(mask, matcher(grammars, grammar, output).allowed())
        assert np.array_equal(mask, matcher(grammars, grammar).allowed(output))
        token = rng.choice(sorted(ids(mask)))
        if token in grammars.end_ids:
            break
        output.append(token)


def test_branches_do_not_see_each_other() -> None:
    found = matcher(LETTERS, regex("a(b|c)(ab|bc)"))
    left, right = found.allowed([0, 1]).copy(), found.allowed([0, 2]).copy()
    assert np.array_equal(found.allowed([0, 1]), left)
    assert np.array_equal(found.allowed([0, 2]), right)
    assert ids(found.allowed([0, 1, 0])) == {TOKENS.index("b")}
    assert ids(found.allowed([0, 2, 1])) == {TOKENS.index("c")}


def test_output_that_differs_from_what_was_read_is_read_again() -> None:
    matchers, grammar = Matchers(LETTERS), regex("a(b|c)a")
    assert ids(matchers.at("s", grammar, (0, 1)).allowed()) == {0}
    assert ids(matchers.at("s", grammar, (0,)).allowed()) == {1, 2, TOKENS.index("ca")}
    assert ids(matchers.at("s", grammar, (0, 2, 0)).allowed()) == set(END_IDS)
    with pytest.raises(ValueError, match=r"past\.output\[1\] = 0, which the grammar does not allow"):
        matchers.at("s", grammar, (0, 0))
    assert ids(matchers.at("s", grammar, (0, 1)).allowed()) == {0}


def test_forced_tokens_are_each_the_only_one_allowed() -> None:
    found = matcher(
        BYTE_LEVEL, schema({"type": "object", "properties": {"name": {"const": "Ann"}}, "required": ["name"]})
    )
    forced = found.forced()
    text = b"".join(map(Vocabulary(BYTES_SPEC.tokenizer_json).token_bytes, forced)).decode()
    assert text.startswith('{"name": "Ann"')
    for length, token in enumerate(forced):
        assert ids(found.allowed(forced[:length])) == {token}


def test_run_is_followed_up_to_the_first_refused_token() -> None:
    found = matcher(LETTERS, regex("ab?c"))
    assert found.follows([0, 2]) == 2
    assert found.follows([0, 1, 1, 2]) == 2
    assert found.follows([1]) == 0
    assert found.follows([]) == 0


# --- ends


def test_only_end_tokens_follow_a_complete_output() -> None:
    assert ids(matcher(LETTERS, regex("ab"), (0, 1)).allowed()) == set(END_IDS)


def test_output_may_end_or_go_on_where_the_grammar_says_so() -> None:
    assert ids(matcher(LETTERS, regex("ab*"), (0,)).allowed()) >= {1, *END_IDS}


def test_what_the_vocabulary_cannot_write_is_a_dead_end() -> None:
    found = matcher(LETTERS, regex("a[0-9]"), (0,))
    with pytest.raises(DeadEnd, match="allows none of the model's tokens"):
        found.allowed()
    assert matcher(LETTERS, regex("a[0-9]")).follows([0, 1]) == 1


def test_grammar_that_grows_too_complex_is_a_dead_end() -> None:
    many = {f"p{number}": {"type": "integer"} for number in range(1000)}
    found = matcher(BYTE_LEVEL, schema({"type": "object", "properties": many}))
    begin = min(ids(found.allowed()))
    with pytest.raises(DeadEnd, match="too complex"):
        found.allowed([begin])


def adjusted(grammar: Grammar, output: tuple[int, ...], withheld_before: int, bias: float = 0.0) -> set[int]:
    constraint = Constraint(END_IDS, withheld_before, grammar)
    sampling = Sampling(bias=((0, bias),), presence_penalty=1e6)
    rule = Adjuster(sampling, constraint, Past(output=output), matcher(LETTERS, grammar, output))
    logits = np.zeros(LETTERS.vocab_size, np.float32)
    rule.adjust(logits, [], len(output))
    return ids(logits > -np.inf)


def test_end_tokens_are_withheld_while_something_else_may_follow() -> None:
    assert adjusted(regex("a+"), (0,), withheld_before=0) == {0, *END_IDS}
    assert adjusted(regex("a+"), (0,), withheld_before=5) == {0}


def test_complete_output_ends_though_more_tokens_were_asked_for() -> None:
    assert adjusted(regex("a"), (0,), withheld_before=5) == set(END_IDS)


def test_no_bias_and_no_penalty_forbids_the_only_token_that_may_follow() -> None:
    assert adjusted(regex("aaa"), (0, 0), withheld_before=0, bias=-1e6) == {0}


def test_padding_of_a_draft_beyond_the_vocabulary_never_follows() -> None:
    for size in (len(TOKENS), LETTERS.vocab_size, LETTERS.vocab_size + 9):
        logits = np.zeros(size, np.float32)
        matcher(LETTERS, regex("[a-c]+")).allow(logits, [0])
        assert ids(logits > -np.inf) == set(range(len(TOKENS)))


# --- refusals


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (regex("("), "unclosed group"),
        (regex("(?=a)b"), "look-around"),
        (regex(r"(a)\1"), "backreferences"),
        (lark("start: nothing"), 'unknown name: "nothing"'),
        (lark('a: "x"'), "start"),
        (schema({"type": "thing"}), "Invalid type: thing"),
        (schema({"not": {}}), "Unimplemented keys"),
        (schema({"$ref": "#/$defs/gone"}), "does not exist"),
        (Grammar(GrammarKind.JSON_SCHEMA, "{"), "EOF"),
        (regex("a" * (MAX_SOURCE_BYTES + 1)), f"at most {MAX_SOURCE_BYTES}"),
    ],
)
def test_grammar_is_refused_in_one_line_with_the_compilers_reason(grammar: Grammar, reason: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(reason)) as refused:
        BYTE_LEVEL.start(grammar)
    assert "\n" not in str(refused.value)


def test_schema_cannot_loosen_how_it_is_read() -> None:
    loose = {"x-guidance": {"lenient": True, "whitespace_flexible": True}, "type": "array", "uniqueItems": True}
    with pytest.raises(GrammarError, match="uniqueItems"):
        BYTE_LEVEL.start(schema(loose))


def test_model_without_an_end_token_takes_no_grammar() -> None:
    with pytest.raises(GrammarError, match="no end token"):
        Grammars(TextSpec(BYTES_SPEC.tokenizer_json), len(BYTES.tokens)).start(regex("a"))


def test_tokenizer_of_another_kind_takes_no_grammar() -> None:
    with pytest.raises(GrammarError, match="tokenizer is of no kind"):
        Grammars(toy.text_spec(), toy.VOCAB_SIZE).start(regex("a"))
