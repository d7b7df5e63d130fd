"""How well acceptance is foretold: by the head, and by the draft's own probability."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.acceptance_artefact import AcceptanceArtefact
from hetspec.training.acceptance.data import Judged

_BINS = 10
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Foretold:
    """accuracy: of "accepted" where the chance is a half or more. log_loss: in nats a token. calibration_error: how far
    chances are from what came true, over ten bins of equal width, weighed by tokens."""

    accuracy: float
    log_loss: float
    calibration_error: float


def foretold(chances: NDArray[np.floating], accepted: NDArray[np.bool_]) -> Foretold:
    kept = np.clip(chances, _LEAST, 1 - _LEAST)
    bins = np.minimum((kept * _BINS).astype(int), _BINS - 1)
    gaps = [abs(float((kept - accepted)[bins == i].sum())) for i in range(_BINS)]
    losses = -np.log(np.where(accepted, kept, 1 - kept))
    return Foretold(float(np.mean((kept >= 0.5) == accepted)), float(np.mean(losses)), float(sum(gaps)) / len(accepted))


@dataclass(frozen=True, slots=True)
class AcceptanceReport:
    """tokens: that were judged, of so many prompts; accepted: their share."""

    target: str
    draft: str
    rejection_weight: float
    prompts: int
    tokens: int
    accepted: float
    head: Foretold
    own_probability: Foretold

    @classmethod
    def of(cls, made: AcceptanceArtefact, judged: Judged) -> AcceptanceReport:
        config = made.config
        return cls(
            config.target.name,
            config.draft.name,
            config.rejection_weight,
            len(np.unique(judged.prompts)),
            len(judged),
            float(np.mean(judged.accepted)),
            foretold(made.head().chances(judged.rows, judged.probabilities), judged.accepted),
            foretold(judged.probabilities, judged.accepted),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> Iterable[list[tuple[str, ...]]]:
        yield [
            ("target", self.target),
            ("draft", self.draft),
            ("judged tokens", f"{self.tokens} of {self.prompts} prompts"),
            ("accepted", f"{self.accepted:.1%}"),
        ]
        yield [
            ("foretold by", "accuracy", "log loss", "calibration error"),
            *(
                (name, f"{one.accuracy:.1%}", f"{one.log_loss:.3f}", f"{one.calibration_error:.3f}")
                for name, one in (("the head", self.head), ("the draft's probability", self.own_probability))
            ),
        ]
