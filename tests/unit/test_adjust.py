"""Penalties, bias and withheld ids against a plain reference, and the whole decoding rule on top of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetspec.decoding.adjust import Adjuster, Logits
from hetspec.decoding.choose import choose
from hetspec.decoding.constraint import Constraint, Grammar, GrammarKind, Past
from hetspec.decoding.noise import gumbel
from hetspec.decoding.sampling import NoiseKey, Sampling

VOCAB = 24
POSITION = 40

ids = st.integers(0, VOCAB - 1)
id_lists = st.lists(ids, max_size=12)
logit_rows = st.lists(st.floats(-20, 20, width=32), min_size=VOCAB, max_size=VOCAB)
samplings = st.builds(
    Sampling,
    temperature=st.just(0.0) | st.floats(0.1, 2),
    top_k=st.integers(0, VOCAB),
    top_p=st.floats(0.1, 1),
    min_p=st.floats(0, 0.5),
    repetition_penalty=st.just(1.0) | st.floats(0.1, 2),
    frequency_penalty=st.just(0.0) | st.floats(-2, 2),
    presence_penalty=st.just(0.0) | st.floats(-2, 2),
    bias=st.dictionaries(ids, st.floats(-100, 100)).map(lambda bias: tuple(sorted(bias.items()))),
)
constraints = st.builds(
    Constraint,
    withheld=st.lists(ids, max_size=3, unique=True).map(tuple),
    withheld_before=st.integers(POSITION - 1, POSITION + 6),
)


def reference(
    logits: Sequence[float], s: Sampling, c: Constraint, prompt: Sequence[int], output: Sequence[int], position: int
) -> list[float]:
    """Id by id, in Python's own floats, as the documents of transformers (repetition) and OpenAI (the others) say."""
    adjusted = []
    biases = dict(s.bias)
    for token, value in enumerate(logits):
        if token in prompt or token in output:
            value = value / s.repetition_penalty if value > 0 else value * s.repetition_penalty
        count = output.count(token)
        value -= s.frequency_penalty * count + (s.presence_penalty if count else 0)
        value = float(np.float32(value))
        value = float(np.float32(value + biases.get(token, 0.0)))
        adjusted.append(-math.inf if token in c.withheld and position < c.withheld_before else value)
    return adjusted


def is_at_an_edge(logits: Sequence[float], s: Sampling) -> bool:
    """Whether a filter's bound lies within rounding of a token: the two sides may then part and both be right."""
    if s.temperature == 0:
        return False
    weights = np.sort(np.exp((np.array(logits) - max(logits)) / s.temperature))[::-1][: s.top_k or VOCAB]
    shares = np.cumsum(weights) / weights.sum()
    near = np.concatenate((shares - s.top_p, weights - s.min_p))
    return bool(((np.abs(near) < 1e-6) & (np.abs(near) > 0)).any())


def reference_choice(logits: Sequence[float], s: Sampling, noise: NoiseKey, position: int) -> int:
    """Sorts everything: top_k best, then the nucleus, then min_p, then the largest of log p + noise."""
    if s.temperature == 0:
        return max(range(VOCAB), key=lambda token: (logits[token], -token))
    top = max(logits)
    weight = {token: math.exp((value - top) / s.temperature) for token, value in enumerate(logits)}
    kept = sorted(weight, key=lambda token: (-logits[token], token))[: s.top_k or VOCAB]
    mass, needed, nucleus = 0.0, s.top_p * sum(weight[token] for token in kept), []
    for token in kept:
        if s.top_p < 1 and mass >= needed:
            break
        nucleus.append(token)
        mass += weight[token]
    kept = [token for token in nucleus if weight[token] >= s.min_p * weight[nucleus[0]] and weight[token] > 0]
    noises = dict(zip(range(VOCAB), gumbel(np.arange(VOCAB), noise, position), strict=True))
    return max(kept, key=lambda token: (math.log(weight[token]) + noises[token], -token))


@given(logit_rows, samplings, constraints, id_lists, id_lists, id_lists)
def test_logits_are_those_of_a_plain_reference(
    row: list[float], s: Sampling, c: Constraint, prompt: list[int], output: list[int], path: list[int]
) -> None:
    adjuster = Adjuster(s, c, Past(tuple(sorted(set(prompt))), tuple(output)))
    logits = np.array(row, np.float32)
    adjuster.adjust(logits, path, POSITION)
    assert logits.tolist() == pytest.approx(reference(row, s, c, prompt, output + path, POSITION), abs=1e-6, rel=1e-6)


@given(logit_rows, samplings, id_lists, id_lists, st.integers(0, 2**64 - 1))
def test_chosen_token_is_that_of_a_plain_reference(
    row: list[float], s: Sampling, prompt: list[int], output: list[int], seed: int
) -> None:
    logits, noise = np.array(row, np.float32), NoiseKey(seed)
    Adjuster(s, Constraint(), Past(tuple(sorted(set(prompt))), tuple(output))).adjust(logits, (), POSITION)
    assert logits.tolist() == pytest.approx(reference(row, s, Constraint(), prompt, output, POSITION), abs=1e-6)
    assume(not is_at_an_edge(logits.tolist(), s))
    assert choose(logits, s, noise, POSITION) == reference_choice(logits.tolist(), s, noise, POSITION)


@given(logit_rows, samplings, id_lists, id_lists, st.integers(0, 12))
def test_a_token_counts_the_same_on_the_path_and_in_the_output(
    row: list[float], s: Sampling, prompt: list[int], output: list[int], cut: int
) -> None:
    """What lets a walk and a draft go on without being told anew."""
    past = tuple(sorted(set(prompt)))
    told, walked = np.array(row, np.float32), np.array(row, np.float32)
    Adjuster(s, Constraint(), Past(past, tuple(output))).adjust(told, (), POSITION)
    Adjuster(s, Constraint(), Past(past, tuple(output[:cut]))).adjust(walked, output[cut:], POSITION)
    assert walked.tobytes() == told.tobytes()


@given(logit_rows, id_lists, id_lists, st.floats(0, 2), st.integers(0, 5))
def test_neutral_values_change_no_bit(
    row: list[float], prompt: list[int], path: list[int], temperature: float, top_k: int
) -> None:
    adjuster = Adjuster(Sampling(temperature, top_k), Constraint((3,), POSITION), Past(tuple(prompt), tuple(path)))
    logits = np.array(row, np.float32)
    assert not adjuster.changes(POSITION)
    adjuster.adjust(logits, path, POSITION)
    assert logits.tobytes() == np.array(row, np.float32).tobytes()


@given(samplings)
def test_a_forbidden_token_stays_forbidden(s: Sampling) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[5] = -np.inf
    Adjuster(s, Constraint(), Past((5,), (5, 5))).adjust(logits, (5,), POSITION)
    assert logits[5] == -np.inf


class Only:
    """A matcher that allows what follows the path's length."""

    def allow(self, logits: Logits, path: Sequence[int]) -> None:
        logits[np.arange(VOCAB) != len(path)] = -np.inf


def test_a_matcher_has_the_last_word() -> None:
    constraint = Constraint(grammar=Grammar(GrammarKind.REGEX, "x"))
    logits = np.zeros(VOCAB, np.float32)
    adjuster = Adjuster(Sampling(bias=((7, 100.0),)), constraint, Past(), Only())
    assert adjuster.changes(POSITION)
    adjuster.adjust(logits, (1, 2), POSITION)
    assert np.flatnonzero(np.isfinite(logits)).tolist() == [2]


def test_a_grammar_without_a_matcher_is_refused() -> None:
    with pytest.raises(ValueError, match="grammar"):
        Adjuster(Sampling(), Constraint(grammar=Grammar(GrammarKind.REGEX, "x")), Past())


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 0.0},
        {"repetition_penalty": math.nan},
        {"frequency_penalty": 1e7},
        {"presence_penalty": math.inf},
        {"bias": ((3, 1.0), (3, 1.0))},
        {"bias": ((3, math.nan),)},
    ],
)
def test_values_beyond_the_bounds_are_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Sampling(**fields)  # type: ignore[arg-type]
