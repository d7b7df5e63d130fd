"""What a row after some layers says of the token that follows: a small reading of it, distilled from the last layer.

The target's own head reads the last layer's row. The lens reads an earlier one, straight and bent, and is taught what
the head says of it, along whole texts: many more rows than trees have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hetspec.model.early_exit import rms_norm
from hetspec.training.early_exit.data import Texts
from hetspec.training.early_exit.tables import Tables

_RIDGE = 1e-3  # of the mean square of what is regressed on
_BEST = 48  # tokens that the last layer's row likes best, and that are taught
_ROWS = 1024  # of a step
_WARM_STEPS = 30


@dataclass(frozen=True, slots=True)
class Distilling:
    """seed: of the rows' order."""

    seed: int = 0
    epochs: int = 3
    rate: float = 3e-3
    decay: float = 0.02

    def steps(self, rows: int) -> int:
        return self.epochs * max(1, rows // _ROWS)


class Lens(nn.Module):
    """`wanted` of rows and `held` of embeddings: their product is how much a token is expected."""

    def __init__(self, hidden_size: int, rank: int, bends: int) -> None:
        super().__init__()
        self.straight = nn.Linear(hidden_size, rank)
        self.bend = nn.Linear(hidden_size, bends)
        self.bent = nn.Linear(bends, rank, bias=False)
        self.held = nn.Linear(hidden_size, rank, bias=False)
        nn.init.zeros_(self.bent.weight)

    def wanted(self, rows: Tensor) -> Tensor:
        """rows: normed, [rows, hidden]. Returns [rows, rank]."""
        found: Tensor = self.straight(rows) + self.bent(f.silu(self.bend(rows)))
        return found

    @torch.no_grad()
    def weights(self) -> dict[str, NDArray[np.float32]]:
        """As `Predictor` names them."""
        named = {
            "wanted": self.straight.weight, "wanted_bias": self.straight.bias, "bend": self.bend.weight,
            "bend_bias": self.bend.bias, "bent": self.bent.weight, "held": self.held.weight,
        }  # fmt: skip
        return {name: values.detach().numpy().copy() for name, values in named.items()}


class Lesson:
    """Rows of texts, and what the head says behind each: the best of the seen tokens. tokens: int64, those seen."""

    def __init__(self, texts: Texts, layer: int, tokens: NDArray[np.int64], tables: Tables) -> None:
        self._rows, self._eps = texts.hidden[layer], tables.rms_eps
        self._final = _normed(texts.final, tables.rms_eps) * tables.final_norm
        self._head = tables.head[tokens]
        self.embedding = torch.from_numpy(tables.embedding[tokens])
        parts = [self._best_of(first) for first in range(0, len(self), _ROWS)]
        self._places, self._shares = (torch.cat(part) for part in zip(*parts, strict=True))

    def __len__(self) -> int:
        return len(self._rows)

    def _best_of(self, first: int) -> tuple[Tensor, Tensor]:
        """Places among the tokens and shares of the probability, of a stretch of rows."""
        logits = torch.from_numpy(self._final[first : first + _ROWS]) @ torch.from_numpy(self._head).T
        best = logits.topk(min(_BEST, logits.shape[1]), dim=1)
        return best.indices, torch.softmax(best.values, 1)

    def begin(self, lens: Lens) -> None:
        """With the linear map to the last layer's rows, as far as the directions matter in which tokens differ most."""
        rank = lens.straight.out_features
        basis = np.linalg.svd(self._head - self._head.mean(0), full_matrices=False)[2][:rank]  # [rank, h]
        rows = _normed(self._rows, self._eps)
        inputs = np.concatenate((rows, np.ones((len(rows), 1), np.float32)), 1)
        read = _regression(inputs, self._final @ basis.T).T  # [rank, h + 1]
        held = _regression(self.embedding.numpy(), self._head @ basis.T).T
        with torch.no_grad():
            for place, values in (
                (lens.straight.weight, read[:, :-1]), (lens.straight.bias, read[:, -1]), (lens.held.weight, held),
            ):  # fmt: skip
                place[: len(values)] = torch.from_numpy(np.ascontiguousarray(values))

    def loss(self, lens: Lens, rows: NDArray[np.intp]) -> Tensor:
        """Cross-entropy of the head's shares, of these rows."""
        wanted = lens.wanted(torch.from_numpy(_normed(self._rows[rows], self._eps)))
        logits = wanted @ lens.held(self.embedding).T
        taught = torch.log_softmax(logits, 1).gather(1, self._places[rows])
        return -(taught * self._shares[rows]).sum(1).mean()


def distil(lens: Lens, lesson: Lesson, how: Distilling, on_step: Callable[[float], None] = lambda loss: None) -> None:
    rng = np.random.default_rng(how.seed)
    lesson.begin(lens)
    optimiser = torch.optim.AdamW(lens.parameters(), lr=how.rate, weight_decay=how.decay, betas=(0.9, 0.98))
    steps = how.steps(len(lesson))
    order = np.concatenate([rng.permutation(len(lesson)) for _ in range(how.epochs)])
    for step, rows in enumerate(np.array_split(order, steps)):
        for group in optimiser.param_groups:
            group["lr"] = how.rate * min(1.0, (step + 1) / _WARM_STEPS) * (1 - step / steps)
        loss = lesson.loss(lens, rows)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(lens.parameters(), 1.0)
        optimiser.step()
        on_step(float(loss.detach()))


def _normed(rows: NDArray[np.float16], eps: float) -> NDArray[np.float32]:
    return rms_norm(rows.astype(np.float32), eps)


def _regression(inputs: NDArray[np.float32], outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """[inputs, outputs]"""
    gram = inputs.T @ inputs
    gram += np.eye(len(gram), dtype=np.float32) * (_RIDGE * np.trace(gram) / len(gram))
    found: NDArray[np.float32] = np.linalg.solve(gram, inputs.T @ outputs).astype(np.float32)
    return found
