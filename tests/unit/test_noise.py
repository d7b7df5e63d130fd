import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.choose import choose
from hetspec.decoding.noise import NOISE_MAX, _philox, best_perturbed, gumbel, tree_noise
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from tests.unit.strategies import trees

# Random123 v1.14.0, tests/kat_vectors, "philox4x32 10": counter, key, output.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def philox_reference(counter: list[int], key: list[int]) -> list[int]:
    """Restated from the paper in Python's integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        hi0, lo0 = divmod(0xD2511F53 * c0, 2**32)
        hi1, lo1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def gumbel_reference(token: int, key: NoiseKey, position: int) -> float:
    """The mapping that the module's docstring states."""
    x = philox_reference([token, position, key.prompt_index, key.choice_index], [key.seed % 2**32, key.seed // 2**32])
    u = ((x[0] + 2**32 * x[1]) // 2**12 + 0.5) / 2**52
    return -math.log(-math.log(u))


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_philox_gives_the_published_known_answers(counter: str, key: str, output: str) -> None:
    got = _philox(*(np.uint64(word) for word in words(counter) + words(key)))
    assert [int(word) for word in got] == words(output)
    assert philox_reference(words(counter), words(key)) == words(output)


index = st.integers(0, 2**32 - 1)


@given(trees(12), st.integers(0, 99), st.sampled_from([0.0, 0.3, 0.8, 2.0]))
def test_the_noise_of_a_tree_decides_among_its_siblings_as_the_target_does(
    tree: TokenTree, seed: int, temperature: float
) -> None:
    rng, key, first = np.random.default_rng(seed), NoiseKey(seed), 7
    logits = rng.normal(0, 2, 12).astype(np.float32)
    ahead = tree_noise(tree, temperature, key, first)
    for parent, depth in zip([-1, *range(len(tree))], [0, *tree.depths()], strict=True):
        nodes = [node for node in range(len(tree)) if tree.parents[node] == parent]
        if nodes:
            tokens = [tree.tokens[node] for node in nodes]
            only = np.full(12, -np.inf, np.float32)
            only[tokens] = logits[tokens]
            best = max(nodes, key=lambda node: (logits[tree.tokens[node]] + ahead[node], -tree.tokens[node]))
            assert tree.tokens[best] == choose(only, Sampling(temperature), key, first + depth)


@given(st.integers(0, 2**64 - 1), index, index, index, st.lists(index, min_size=1, max_size=5))
def test_noise_is_the_documented_function_of_key_position_and_token(
    seed: int, prompt: int, choice: int, position: int, tokens: list[int]
) -> None:
    key = NoiseKey(seed, prompt, choice)
    want = [gumbel_reference(token, key, position) for token in tokens]
    assert gumbel(np.array(tokens), key, position) == pytest.approx(want, rel=1e-15)


def test_seed_is_taken_modulo_two_to_the_64() -> None:
    ids = np.arange(10)
    assert np.array_equal(gumbel(ids, NoiseKey(-1), 3), gumbel(ids, NoiseKey(2**64 - 1), 3))


def test_no_part_of_the_key_is_lost() -> None:
    ids = np.arange(64)
    keys = [NoiseKey(0), NoiseKey(1), NoiseKey(2**32), NoiseKey(0, 1), NoiseKey(0, 0, 1)]
    streams = [tuple(gumbel(ids, key, position)) for key in keys for position in (0, 1)]
    assert len(set(streams)) == len(streams)


def test_noise_max_bounds_the_largest_uniform() -> None:
    assert ((2**52 - 1) + 0.5) / 2**52 == 1 - 2.0**-53
    assert -math.log(-math.log(1 - 2.0**-53)) == NOISE_MAX


def test_noise_follows_the_gumbel_distribution() -> None:
    from scipy import stats

    noise = np.concatenate([gumbel(np.arange(5_000), NoiseKey(7), position) for position in range(20)])
    assert stats.kstest(noise, "gumbel_r").pvalue > 1e-3


@given(st.integers(0, 2**64 - 1), st.integers(1, 300), st.sampled_from([0.01, 1.0, 8.0, 1e4]), st.integers(1, 9))
def test_noise_that_is_skipped_never_changes_the_result(seed: int, vocab: int, spread: float, count: int) -> None:
    key, ids = NoiseKey(seed), np.arange(vocab)
    scores = np.random.default_rng(seed).normal(0, spread, vocab)
    scores[:: 1 + seed % 7] = scores[0]
    values = scores + np.array([gumbel_reference(token, key, 5) for token in range(vocab)])
    want = np.lexsort((ids, -values))[:count]
    best, best_scores = best_perturbed(scores, None, key, 5, count)
    assert list(best) == list(want)
    assert best_scores == pytest.approx(values[want], rel=1e-14)


def test_a_forbidden_token_never_enters_the_list() -> None:
    scores = np.array([-np.inf, 0.0, -np.inf])
    best, _ = best_perturbed(scores, None, NoiseKey(0), 0, 3)
    assert list(best) == [1]


def test_a_position_out_of_range_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="position = 4294967296"):
        gumbel(np.arange(1), NoiseKey(0), 2**32)


@pytest.mark.parametrize("key", [{"prompt_index": 2**32}, {"choice_index": -1}])
def test_an_index_that_does_not_fit_the_counter_is_refused_by_name(key: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(key))):
        NoiseKey(0, **key)
