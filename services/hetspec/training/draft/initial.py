"""What a student begins with: layers and head of the target itself."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hetspec.model.checkpoint import Checkpoint
from hetspec.model.checkpoint.draft_checkpoint import DraftCheckpoint
from hetspec.model.config import ModelConfig
from hetspec.training.draft.student import Student

_ADDING = ("o", "down")  # what a layer adds to the row that it reads comes out of these
_TOKEN_SHARE = 0.5  # size of what a token brings at first, against its feature


def new_student(
    config: ModelConfig, target: Checkpoint, head_ids: NDArray[np.int64], feature_scale: float, seed: int
) -> Student:
    """feature_scale: root mean square of a hidden row of the target.

    A student that reads features begins with the target's last layers on nearly the row that they come from; another
    one with layers from the first to the last, evenly spaced, on the token's embedding.
    """
    torch.manual_seed(seed)
    embedding = target.tensor("embed")
    student = Student(config, torch.from_numpy(np.array(embedding)))
    with torch.no_grad():
        student.head.weight.copy_(_tensor(target, "embed" if target.config.tied_head else "head")[head_ids])
        student.final_norm.copy_(_tensor(target, "final_norm"))
        for layer, source in zip(student.layers, _sources(config, target.config), strict=True):
            for name, parameter in layer.named_parameters():
                parameter.copy_(_tensor(target, f"layers.{source}.{name.removesuffix('.weight')}"))
        if student.feature_mix is not None:
            std = _TOKEN_SHARE * feature_scale / config.hidden_size**0.5
            nn.init.normal_(student.embed_mix.weight, std=std)
            nn.init.eye_(student.feature_mix.weight).mul_(feature_scale)
        else:
            nn.init.eye_(student.embed_mix.weight).mul_(float(np.sqrt(np.mean(np.square(embedding)))))
    return student


def continued_student(
    config: ModelConfig, draft: DraftCheckpoint, head_ids: NDArray[np.int64], target: Checkpoint
) -> Student:
    """One that was trained before. config: the draft's own, or one of more layers: each of those is the target's last
    one, except that it adds nothing to what it reads until it is trained. head_ids: the draft's own, or some of them.
    """
    known = np.searchsorted(draft.head_ids(), head_ids)
    student = Student(config, torch.from_numpy(np.array(target.tensor("embed"))))
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            name = name.removesuffix(".weight")
            if (new := _new_layer(name, draft.config.n_layers, target)) is not None:
                parameter.copy_(new)
            elif name == "head":
                parameter.copy_(_tensor(draft, name)[known])
            else:
                parameter.copy_(torch.from_numpy(np.array(draft.rows(name, 0, len(parameter)))))
    return student


def _new_layer(name: str, known_layers: int, target: Checkpoint) -> Tensor | None:
    """What the parameter of a layer beyond those known begins with; None for any other."""
    prefix, layer, field = name.split(".") if name.count(".") == 2 else ("", "", "")
    if prefix != "layers" or int(layer) < known_layers:
        return None
    values = _tensor(target, f"layers.{target.config.n_layers - 1}.{field}")
    return torch.zeros_like(values) if field in _ADDING else values


def _sources(config: ModelConfig, target: ModelConfig) -> list[int]:
    if config.reads_features:
        return list(range(target.n_layers - config.n_layers, target.n_layers))
    last = target.n_layers - 1
    return [round(place) for place in np.linspace(0 if config.n_layers > 1 else last, last, config.n_layers)]


def _tensor(target: Checkpoint, name: str) -> Tensor:
    return torch.from_numpy(np.array(target.tensor(name)))
