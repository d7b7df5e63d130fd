"""The acceptance head against torch, its loss and its report against closed forms, its folder against damage."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from hetspec.model.acceptance_artefact import AcceptanceArtefact
from hetspec.model.checkpoint import CheckpointError
from hetspec.model.checkpoint.acceptance_folder import CONFIG_FILE, WEIGHTS_FILE, open_acceptance
from hetspec.training.acceptance.data import Judged
from hetspec.training.acceptance.fit import Fitting, Head, acceptance_loss, fit
from hetspec.training.acceptance.report import foretold
from tests.acceptance_artefact import NOBODY, random_head

HIDDEN = 24


def test_head_says_what_torch_says() -> None:
    made, rng = random_head(HIDDEN, blocks=3), np.random.default_rng(1)
    rows, own = rng.normal(0, 9, (50, HIDDEN)).astype(np.float32), rng.uniform(0, 1, 50).astype(np.float32)
    own[:2] = 0, 1  # of which no odds can be told
    network = Head(HIDDEN, Fitting(blocks=3)).eval()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in made.weights.items()})
    normed = torch.nn.functional.rms_norm(torch.from_numpy(rows), (HIDDEN,), eps=made.config.rms_eps)
    odds = torch.logit(torch.from_numpy(own).double(), eps=1e-6).float()
    expected = torch.sigmoid(network(normed, odds)).detach().numpy()
    np.testing.assert_allclose(made.head().chances(rows, own), expected, atol=1e-6)
    assert {name: values.tolist() for name, values in network.weights().items()} == {
        name: values.tolist() for name, values in made.weights.items()
    }


@pytest.mark.parametrize("weight", [1.0, 6.0])
def test_loss_weighs_what_was_rejected(weight: float) -> None:
    logits, accepted = [0.3, -1.2, 2.0, 0.0], [1, 0, 0, 1]
    expected, total = 0.0, 0.0
    for logit, label in zip(logits, accepted, strict=True):
        chance = 1 / (1 + math.exp(-logit))
        expected += -math.log(chance) if label else -weight * math.log(1 - chance)
        total += 1 if label else weight
    loss = acceptance_loss(torch.tensor(logits), torch.tensor(accepted, dtype=torch.float32), weight)
    assert float(loss) == pytest.approx(expected / total, rel=1e-5)


def drawn(count: int, seed: int) -> tuple[Judged, np.ndarray]:
    """Tokens whose acceptance is drawn by chances that their rows and the draft tell; and these chances."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (count, HIDDEN)).astype(np.float32)
    normed = rows / np.sqrt(np.mean(rows**2, 1, keepdims=True))
    told = rng.normal(0, 2, count)  # by the draft: too sure
    chances = 1 / (1 + np.exp(-(3 * normed[:, 0] + np.abs(normed[:, 1]) + told / 2 - 1)))
    accepted = rng.random(count) < chances
    return Judged(rows, accepted, (1 / (1 + np.exp(-told))).astype(np.float32), np.arange(count)), chances


def test_fitted_head_foretells_nearly_as_well_as_the_chances_that_acceptance_was_drawn_by() -> None:
    (training, _), (held, _), (fresh, chances) = drawn(3000, 0), drawn(1000, 1), drawn(4000, 2)
    weights = fit(training, held, 1e-5, Fitting(epochs=6, rate=8e-3, decay=0.0, drop=0.0), lambda _: None)
    made = AcceptanceArtefact(replace(random_head(HIDDEN, blocks=1).config), weights)
    found, best = (
        foretold(made.head().chances(fresh.rows, fresh.probabilities), fresh.accepted),
        foretold(chances, fresh.accepted),
    )
    guess = foretold(np.full(len(fresh), np.mean(training.accepted)), fresh.accepted)
    assert found.log_loss - best.log_loss < 0.1 * (guess.log_loss - best.log_loss)
    assert found.calibration_error < 0.04


def test_rejected_tokens_that_count_more_make_the_head_more_careful() -> None:
    (training, _), (held, _) = drawn(800, 3), drawn(400, 4)
    means = []
    for weight in (1.0, 6.0):
        weights = fit(training, held, 1e-5, Fitting(epochs=5, rate=8e-3, rejection_weight=weight), lambda _: None)
        head = AcceptanceArtefact(random_head(HIDDEN, blocks=1).config, weights).head()
        means.append(head.chances(held.rows, held.probabilities).mean())
    assert means[1] < means[0] - 0.1


def test_report_counts_by_definition() -> None:
    chances = np.array([0.95, 0.91, 0.55, 0.45, 0.05, 0.05])
    accepted = np.array([True, True, False, True, False, False])
    told = foretold(chances, accepted)
    assert told.accuracy == pytest.approx(4 / 6)
    gaps = abs(0.95 + 0.91 - 2) + abs(0.55 - 0) + abs(0.45 - 1) + abs(0.05 + 0.05 - 0)
    assert told.calibration_error == pytest.approx(gaps / 6)
    likely = [0.95, 0.91, 0.45, 0.45, 0.95, 0.95]
    assert told.log_loss == pytest.approx(-sum(map(math.log, likely)) / 6)


def write(folder: Path, **changes: object) -> Path:
    made = random_head(HIDDEN)
    config = json.loads(made.config.to_json()) | changes
    folder.mkdir(exist_ok=True)
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    save_file(made.weights, folder / WEIGHTS_FILE)
    return folder


def test_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    made, found = random_head(HIDDEN), open_acceptance(write(tmp_path / "a"), NOBODY.fingerprint, NOBODY.fingerprint)
    assert found.config == made.config
    again = AcceptanceArtefact.from_pb(found.to_pb())
    assert again.config == made.config
    for name, values in made.weights.items():
        assert values.tobytes() == found.weights[name].tobytes() == again.weights[name].tobytes()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"blocks": 0}, "blocks = 0, must be a positive integer"),
        ({"blocks": 3}, "blocks"),
        ({"rejection_weight": 0.0}, r"rejection_weight = 0.0, must be in \(0, 1000\]"),
        ({"version": 2}, "version"),
        ({"size": 1}, "size"),
    ],
)
def test_unsound_folder_is_refused(changes: dict[str, object], problem: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=problem):
        open_acceptance(write(tmp_path / "a", **changes), NOBODY.fingerprint, NOBODY.fingerprint)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_head_made_for_others_is_refused(role: str, tmp_path: Path) -> None:
    mine = {"target": NOBODY.fingerprint, "draft": NOBODY.fingerprint} | {role: "1" * 32}
    with pytest.raises(CheckpointError, match=f"made for nobody with fingerprint 0+, the {role} has 1+"):
        open_acceptance(write(tmp_path / "a"), mine["target"], mine["draft"])
