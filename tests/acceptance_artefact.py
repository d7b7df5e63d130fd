"""Acceptance heads of random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from hetspec.model.acceptance_artefact import AcceptanceArtefact, AcceptanceConfig
from hetspec.model.artefact import MadeFor
from hetspec.model.checkpoint import open_checkpoint, open_draft
from hetspec.model.checkpoint.acceptance_folder import CONFIG_FILE, WEIGHTS_FILE

NOBODY = MadeFor("nobody", "0" * 32)


def random_head(hidden_size: int, blocks: int = 2, logit: float = 0.0, seed: int = 0) -> AcceptanceArtefact:
    """logit: about which its answers lie."""
    config = AcceptanceConfig(
        target=NOBODY, draft=NOBODY, hidden_size=hidden_size, rms_eps=1e-5, blocks=blocks, rejection_weight=1.0
    )
    rng = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.float32]] = {
        name: (rng.normal(0, 0.5, shape) / hidden_size**0.5).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    weights["out_bias"] = np.array([logit], np.float32)
    return AcceptanceArtefact(config, weights)


def make_acceptance(folder: Path, target: Path, draft: Path, cache_dir: Path, logit: float = 0.0) -> Path:
    """A folder made for these checkpoints."""
    opened = open_checkpoint(target)
    drafting = open_draft(draft, opened, cache_dir)
    made = random_head(drafting.config.hidden_size, logit=logit)
    names = {
        "target": MadeFor(opened.config.name, opened.fingerprint(cache_dir)),
        "draft": MadeFor(drafting.config.name, drafting.fingerprint(cache_dir)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(replace(made.config, **names).to_json())
    save_file(made.weights, folder / WEIGHTS_FILE)
    return folder
