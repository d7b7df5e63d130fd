"""Early-exit predictors of random weights: they drop much, and know nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from hetspec.model.artefact import MadeFor
from hetspec.model.checkpoint import open_checkpoint
from hetspec.model.checkpoint.early_exit_folder import CONFIG_FILE, WEIGHTS_FILE
from hetspec.model.early_exit_artefact import EarlyExitArtefact, EarlyExitConfig

NOBODY = MadeFor("nobody", "0" * 32)


def random_predictor(hidden_size: int, layer: int, threshold: float, seed: int = 0) -> EarlyExitArtefact:
    config = EarlyExitConfig(
        target=NOBODY, draft=NOBODY, hidden_size=hidden_size, rms_eps=1e-5, layer=layer, rank=4, bends=6,
        answers=2, row_features=3, units=5, recall=0.5, threshold=threshold,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.float32]] = {
        name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in config.shapes().items()
    }
    return EarlyExitArtefact(config, weights)


def make_early_exit(
    folder: Path, target: Path, cache_dir: Path, layer: int, threshold: float, recall: float = 0.5
) -> Path:
    """A folder made for the target. recall: that it claims."""
    checkpoint = open_checkpoint(target)
    made = random_predictor(checkpoint.config.hidden_size, layer, threshold)
    made_for = MadeFor(checkpoint.config.name, checkpoint.fingerprint(cache_dir))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(replace(made.config, target=made_for, recall=recall).to_json())
    save_file(made.weights, folder / WEIGHTS_FILE)
    return folder
