"""A folder that holds an acceptance head.

config.json, every key of it and no other:
    {"format": "hetspec-acceptance", "version": 1, "target": {"name": ..., "fingerprint": ...},
     "draft": {"name": ..., "fingerprint": ...}, "hidden_size": h, "rms_eps": ..., "blocks": n, "rejection_weight": ...}
Rows are the draft's. `rejection_weight` is what a rejected token counted for in the training loss, an accepted one
counting 1. Fingerprints are the checkpoints'.

model.safetensors, F32: the weights of hetspec.model.acceptance.AcceptanceHead.
"""

from __future__ import annotations

from pathlib import Path

from hetspec.model.acceptance_artefact import AcceptanceArtefact, AcceptanceConfig
from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.hf_text import read_json
from hetspec.model.checkpoint.named_weights import read_weights
from hetspec.model.checkpoint.safetensors_file import SafetensorsFile

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def open_acceptance(folder: Path, target_fingerprint: str, draft_fingerprint: str) -> AcceptanceArtefact:
    """Raises CheckpointError for a folder that is not sound, or was made for another target or draft."""
    where = folder / CONFIG_FILE
    try:
        config = AcceptanceConfig.from_json(read_json(where))
    except ValueError as error:
        raise CheckpointError(f"{where}: {error}") from error
    for role, made_for, mine in (
        ("target", config.target, target_fingerprint),
        ("draft", config.draft, draft_fingerprint),
    ):
        if made_for.fingerprint != mine:
            raise CheckpointError(
                f"{where}: made for {made_for.name} with fingerprint {made_for.fingerprint}, the {role} has {mine}"
            )
    return AcceptanceArtefact(
        config, read_weights(SafetensorsFile(folder / WEIGHTS_FILE), config.shapes(), CONFIG_FILE)
    )
