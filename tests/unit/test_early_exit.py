"""The early-exit predictor: its chances are the rule's, node by node; what it keeps are trees; torch fits what runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.model.artefact import MadeFor
from hetspec.model.checkpoint import CheckpointError
from hetspec.model.checkpoint.early_exit_folder import open_early_exit
from hetspec.model.early_exit import DraftedRows, Predictor, draft_features, log_chances, strengths
from hetspec.model.early_exit_artefact import EarlyExitConfig
from hetspec.training.early_exit.data import NO_CHOICE, Trees
from hetspec.training.early_exit.lens import Lens
from hetspec.training.early_exit.network import DraftAlone, Families, Network, Shape, family_loss
from tests.unit.strategies import trees

HIDDEN, RANK, BENDS, ANSWERS, SIDES, UNITS, EPS, VOCAB = 16, 4, 6, 2, 3, 5, 1e-5, 40
LAYER = 2
CONFIG = EarlyExitConfig(
    target=MadeFor("target", "f" * 32), draft=MadeFor("draft", "d" * 32), hidden_size=HIDDEN, rms_eps=EPS, layer=LAYER,
    rank=RANK, bends=BENDS, answers=ANSWERS, row_features=SIDES, units=UNITS, recall=0.995, threshold=-3.0,
)  # fmt: skip
LOOKUP = 1


def random_weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in CONFIG.shapes().items()}


def drawn(tree: TokenTree, seed: int) -> tuple[DraftedRows, NDArray[np.float32], NDArray[np.float32]]:
    """The tree with probabilities, hidden rows and embeddings out of nowhere."""
    rng = np.random.default_rng(seed)
    probabilities = rng.uniform(1e-7, 1, len(tree)).tolist()
    sources = rng.integers(1, 3, len(tree)).tolist()
    drafted = DraftedRows.of(3, tree, probabilities, sources, rng.gumbel(0, 0.8, len(tree)))
    rows, embeddings = rng.normal(0, 2, (2, 1 + len(tree), HIDDEN)).astype(np.float32)
    return drafted, rows, embeddings


def naive_features(
    tree: TokenTree, drafted: DraftedRows, rows: NDArray[np.float32], embeddings: NDArray[np.float32], node: int
) -> list[float]:
    """Of one node, as the rule reads."""
    w = random_weights()

    def normed(row: int) -> NDArray[np.float64]:
        x = rows[row].astype(np.float64)
        return x / math.sqrt(float(np.mean(x * x)) + EPS)

    def log_of(one: int) -> float:
        return max(float(drafted.log_probabilities[1 + one]), -14.0)

    def match(one: int) -> float:
        row = normed(1 + tree.parents[one])
        bend = w["bend"] @ row + w["bend_bias"]
        wanted = w["wanted"] @ row + w["wanted_bias"] + w["bent"] @ (bend / (1 + np.exp(-bend)))
        return float(wanted @ (w["held"] @ embeddings[1 + one].astype(np.float64)) + drafted.noise[1 + one])

    siblings = [other for other in range(len(tree)) if tree.parents[other] == tree.parents[node]]
    rank = sum((-drafted.log_probabilities[1 + o], o) < (-drafted.log_probabilities[1 + node], node) for o in siblings)
    path = tree.path(node)
    draft = [log_of(node), sum(map(log_of, path)), len(path), math.log1p(rank), drafted.sources[1 + node] == LOOKUP]
    asked = w["asked"] @ normed(1 + tree.parents[node]) + w["asked_bias"]
    agreement = float(asked @ (w["answered"] @ normed(1 + node) + w["answered_bias"]))
    sides = [*(w["above"] @ normed(1 + tree.parents[node])), *(w["own"] @ normed(1 + node))]
    beside = match(node) - max(map(match, siblings))
    return [*draft, match(node), beside, agreement, float(drafted.noise[1 + node]), *sides]


def naive_chances(
    tree: TokenTree, drafted: DraftedRows, rows: NDArray[np.float32], embeddings: NDArray[np.float32]
) -> list[float]:
    """Of lying on the accepted path."""
    w = random_weights()

    def strength(node: int) -> float:
        inner = w["first"] @ np.array(naive_features(tree, drafted, rows, embeddings, node)) + w["first_bias"]
        strong = float(w["second"] @ (inner / (1 + np.exp(-inner))) + w["second_bias"][0])
        return math.exp(min(60.0, max(-60.0, strong)))

    chances: list[float] = []
    for node, parent in enumerate(tree.parents):
        siblings = [other for other in range(len(tree)) if tree.parents[other] == parent]
        share = strength(node) / (1 + sum(map(strength, siblings)))
        chances.append(share * (1.0 if parent == ROOT else chances[parent]))
    return chances


@given(trees(VOCAB), st.integers(0, 99))
@settings(max_examples=60)
def test_chances_are_the_rules_node_by_node(tree: TokenTree, seed: int) -> None:
    drafted, rows, embeddings = drawn(tree, seed)
    found = Predictor(random_weights(), EPS).log_chances(drafted, rows, embeddings)
    assert found[0] == 0
    wanted = naive_chances(tree, drafted, rows, embeddings)
    np.testing.assert_allclose(np.exp(found[1:]), wanted, rtol=2e-3, atol=1e-6)


@given(trees(VOCAB), st.integers(0, 99), st.floats(-12, 0))
def test_what_is_kept_is_a_tree_and_every_node_in_it_and_its_ancestors_reach_the_threshold(
    tree: TokenTree, seed: int, threshold: float
) -> None:
    drafted, rows, embeddings = drawn(tree, seed)
    predictor = Predictor(random_weights(), EPS)
    chances = predictor.log_chances(drafted, rows, embeddings)
    kept = predictor.keeps(drafted, rows, embeddings, threshold)
    assert kept[0]
    for node in range(len(tree)):
        assert kept[1 + node] == all(chances[1 + above] >= threshold for above in tree.path(node))


@given(st.lists(trees(VOCAB), min_size=1, max_size=4), st.integers(0, 99))
def test_trees_one_after_another_have_the_chances_of_each_alone(several: list[TokenTree], seed: int) -> None:
    alone = [drawn(tree, seed + place) for place, tree in enumerate(several)]
    firsts = np.cumsum([0, *(len(rows) for _, rows, _ in alone)])
    joined = DraftedRows(
        np.concatenate(
            [np.where(d.parents < 0, -1, d.parents + f) for (d, _, _), f in zip(alone, firsts, strict=False)]
        ),
        *(
            np.concatenate([getattr(d, name) for d, _, _ in alone])
            for name in ("tokens", "log_probabilities", "sources", "noise")
        ),
    )
    predictor = Predictor(random_weights(), EPS)
    rows, embeddings = (np.concatenate(parts) for parts in list(zip(*alone, strict=True))[1:])
    wanted = np.concatenate([predictor.log_chances(*one) for one in alone])
    np.testing.assert_allclose(predictor.log_chances(joined, rows, embeddings), wanted, rtol=1e-4, atol=1e-5)


def families(tree: TokenTree, seed: int) -> tuple[Families, Trees, NDArray[np.float32]]:
    """Choices out of nowhere, of which some are not known. Also the embedding of the vocabulary."""
    drafted, rows, _ = drawn(tree, seed)
    rng = np.random.default_rng(seed)
    embedding = rng.normal(0, 2, (VOCAB, HIDDEN)).astype(np.float32)
    choices = rng.integers(NO_CHOICE, VOCAB, len(rows))
    choices[0] = rng.integers(VOCAB)
    hidden = {LAYER: rows.astype(np.float16)}
    of = Trees(drafted, np.zeros(len(rows), np.int64), choices, np.ones(len(rows), np.bool_), hidden)
    return Families.of(of, LAYER, embedding, EPS), of, embedding


@given(trees(VOCAB).filter(len), st.integers(0, 99))
@settings(max_examples=30)
def test_the_network_exported_scores_as_it_does_itself(tree: TokenTree, seed: int) -> None:
    one, of, embedding = families(tree, seed)
    torch.manual_seed(seed)
    lens = Lens(HIDDEN, RANK, BENDS)
    torch.nn.init.normal_(lens.bent.weight)
    network = Network(lens, Shape(RANK, BENDS, ANSWERS, SIDES, UNITS, drop=0.5))
    alone = DraftAlone(UNITS)
    network.eval()
    for net in (network, alone):
        if len(tree) > 1:
            net.begin(one)
    with torch.no_grad():
        theirs, theirs_alone = network(one).numpy(), alone(one).numpy()
    drafted, rows = of.drafted, of.hidden[LAYER].astype(np.float32)
    found = Predictor(network.weights(), EPS).log_chances(drafted, rows, embedding[drafted.tokens])
    np.testing.assert_allclose(found, log_chances(drafted, theirs), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(strengths(alone.weights(), draft_features(drafted)), theirs_alone, rtol=1e-3, atol=1e-3)


@given(trees(VOCAB).filter(len), st.integers(0, 99))
@settings(max_examples=30)
def test_the_loss_is_the_cross_entropy_of_each_family_whose_choice_is_known(tree: TokenTree, seed: int) -> None:
    one, of, _ = families(tree, seed)
    strong = np.random.default_rng(seed).normal(0, 2, len(tree)).astype(np.float32)
    losses = []
    for parent in {*tree.parents}:
        members = [node for node in range(len(tree)) if tree.parents[node] == parent]
        right = [strong[node] for node in members if tree.tokens[node] == of.choices[1 + parent]] or [0.0]
        if of.choices[1 + parent] != NO_CHOICE:
            losses.append(math.log(1 + sum(math.exp(strong[n]) for n in members)) - right[0])
    assert float(family_loss(torch.from_numpy(strong), one)) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_a_tree_without_nodes_keeps_its_root() -> None:
    drafted, rows, embeddings = drawn(TokenTree(), 0)
    assert Predictor(random_weights(), EPS).keeps(drafted, rows, embeddings, 0.0).tolist() == [True]


def write(folder: Path, config: Any = None, weights: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(CONFIG.to_json() if config is None else json.dumps(config))
    save_file(random_weights() if weights is None else weights, folder / "model.safetensors")
    return folder


def test_a_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    folder = open_early_exit(write(tmp_path), CONFIG.target.fingerprint)
    assert folder.config == CONFIG
    assert {name: w.tolist() for name, w in folder.weights.items()} == {
        n: w.tolist() for n, w in random_weights().items()
    }
    assert set(folder.alone) == {"first", "first_bias", "second", "second_bias"}
    without = replace(CONFIG, threshold=None)
    (tmp_path / "config.json").write_text(without.to_json())
    assert open_early_exit(tmp_path, CONFIG.target.fingerprint).config == without


BROKEN_CONFIGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    r"unknown fields \['more'\]": lambda c: c | {"more": 1},
    r"missing \['threshold'\]": lambda c: {k: v for k, v in c.items() if k != "threshold"},
    "format = 'gguf'": lambda c: c | {"format": "gguf"},
    "version = 2, must be 3": lambda c: c | {"version": 2},
    "version = True": lambda c: c | {"version": True},
    "layer = 0": lambda c: c | {"layer": 0},
    "rank = 4.0": lambda c: c | {"rank": 4.0},
    "recall = 1.5": lambda c: c | {"recall": 1.5},
    "threshold = 0.5": lambda c: c | {"threshold": 0.5},
    "threshold = nan": lambda c: c | {"threshold": math.nan},
    "fingerprint = 7, must be a string": lambda c: c | {"draft": {"name": "d", "fingerprint": 7}},
    r"target: unknown fields \[\], missing": lambda c: c | {"target": {"name": "t"}},
    "must hold a JSON object": lambda c: [c],
    r"tensor wanted has shape \[4, 16\], config.json says \[5, 16\]": lambda c: c | {"rank": 5},
}


@pytest.mark.parametrize("message", list(BROKEN_CONFIGS))
def test_a_config_that_is_not_sound_is_refused_by_name(tmp_path: Path, message: str) -> None:
    folder = write(tmp_path, BROKEN_CONFIGS[message](json.loads(CONFIG.to_json())))
    with pytest.raises(CheckpointError, match=message):
        open_early_exit(folder, CONFIG.target.fingerprint)


BROKEN_WEIGHTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tensor own is missing": lambda w: {name: values for name, values in w.items() if name != "own"},
    "tensor more is not known": lambda w: w | {"more": w["own"].copy()},
    r"tensor held has shape \[4, 15\]": lambda w: w | {"held": w["held"][:, 1:].copy()},
    "tensor own holds a value": lambda w: w | {"own": np.full_like(w["own"], np.nan)},
    "tensor own is U32": lambda w: w | {"own": w["own"].astype(np.uint32)},
}


@pytest.mark.parametrize("message", list(BROKEN_WEIGHTS))
def test_weights_that_are_not_sound_are_refused_by_name(tmp_path: Path, message: str) -> None:
    folder = write(tmp_path, weights=BROKEN_WEIGHTS[message](random_weights()))
    with pytest.raises(CheckpointError, match=message):
        open_early_exit(folder, CONFIG.target.fingerprint)


def test_a_folder_for_another_target_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(CheckpointError, match=f"made for target with fingerprint {'f' * 32}, the target has 0"):
        open_early_exit(tmp_path, "0")
    assert load_file(tmp_path / "model.safetensors").keys() == CONFIG.shapes().keys()
