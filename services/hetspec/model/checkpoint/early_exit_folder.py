"""A folder that holds an early-exit predictor.

config.json, every key of it and no other:
    {"format": "hetspec-early-exit", "version": 3, "target": {"name": ..., "fingerprint": ...},
     "draft": {"name": ..., "fingerprint": ...}, "hidden_size": h, "rms_eps": ..., "layer": ..., "rank": r,
     "bends": b, "answers": a, "row_features": k, "units": u, "recall": ..., "threshold": ...}
Rows are read after `layer` layers. Nodes whose log chance is below `threshold` are dropped; null: none is. `recall` is
the share of accepted nodes that the threshold was chosen to keep. Fingerprints are the checkpoints'.

model.safetensors, F32 or F16: the weights of hetspec.model.early_exit.Predictor, and with "draft_alone." before their
names the first, first_bias, second and second_bias of one that has the draft's features alone, to compare with.
"""

from __future__ import annotations

from pathlib import Path

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.hf_text import read_json
from hetspec.model.checkpoint.named_weights import read_weights
from hetspec.model.checkpoint.safetensors_file import SafetensorsFile
from hetspec.model.early_exit_artefact import EarlyExitArtefact, EarlyExitConfig

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


def open_early_exit(folder: Path, target_fingerprint: str) -> EarlyExitArtefact:
    """Raises CheckpointError for a folder that is not sound, or was made for another target."""
    where = folder / CONFIG_FILE
    try:
        config = EarlyExitConfig.from_json(read_json(where))
    except ValueError as error:
        raise CheckpointError(f"{where}: {error}") from error
    if config.target.fingerprint != target_fingerprint:
        raise CheckpointError(
            f"{where}: made for {config.target.name} with fingerprint {config.target.fingerprint}, "
            f"the target has {target_fingerprint}"
        )
    return EarlyExitArtefact(config, read_weights(SafetensorsFile(folder / WEIGHTS_FILE), config.shapes(), CONFIG_FILE))
