"""Measures an early-exit predictor as a verifier would use it: tree by tree, on rows of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.model.early_exit import draft_features, log_chances, strengths
from hetspec.model.early_exit_artefact import EarlyExitArtefact
from hetspec.model.transformer import Transformer
from hetspec.training.corpus.prompts import NO_CATEGORY, Prompt
from hetspec.training.early_exit.cost import measure_cost
from hetspec.training.early_exit.data import Trees
from hetspec.training.early_exit.gather import Growing, TreeGatherer, temperature_of
from hetspec.training.early_exit.report import OVERALL, Candidate, EarlyExitReport, Measured, measured
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target


class Measurement:
    """Of a predictor with its target and a draft, which need not be the one that it was fitted with."""

    def __init__(self, target: Target, draft: OpenDraft, folder: EarlyExitArtefact, growing: Growing) -> None:
        self._target = target
        self._draft = draft
        self._folder = folder
        self._growing = growing
        self._embedding = target.checkpoint.tensor("embed")

    def on_prompts(self, prompts: Sequence[Prompt], on_trees: Callable[[int], None]) -> EarlyExitReport:
        """Grows trees along answers to the prompts."""
        layers = [self._folder.config.layer]
        with TreeGatherer(self._target, self._draft, self._growing, layers) as gatherer:
            used = gatherer.gather(iter(prompts), None, on_trees)
            return self.report(gatherer.trees(), used, gatherer.target)

    def report(
        self, trees: Trees, prompts: Sequence[Prompt], target: Transformer, candidates: Sequence[Candidate] = ()
    ) -> EarlyExitReport:
        """prompts: by the numbers that the trees give. candidates: layers that were tried."""
        config, predictor, growing = self._folder.config, self._folder.predictor(), self._growing
        return EarlyExitReport(
            target=config.target.name,
            draft=self._draft.checkpoint.config.name,
            layer=config.layer,
            layers=target.config.n_layers,
            recall=config.recall,
            threshold=config.threshold,
            nodes=growing.nodes,
            prompts=len(np.unique(trees.prompts)),
            threads=growing.threads,
            groups=dict(self._groups(trees, prompts)),
            candidates=candidates,
            cost=measure_cost(config, predictor, target, growing.nodes),
        )

    def _groups(self, trees: Trees, prompts: Sequence[Prompt]) -> Iterator[tuple[str, Measured]]:
        chances, alone = self._chances(trees), self._alone(trees)
        for name, numbers in _groups_of(np.unique(trees.prompts).tolist(), prompts):
            belongs = np.isin(trees.prompts, numbers)
            yield name, measured(trees, chances, alone, self._folder.config.threshold, belongs)

    def _chances(self, trees: Trees) -> NDArray[np.float64]:
        """A prompt at a time; the rows of one stand together, and prompts ascend."""
        predictor, layer = self._folder.predictor(), self._folder.config.layer
        found: list[NDArray[np.float64]] = []
        for number in np.unique(trees.prompts).tolist():
            one = trees.only([number])
            rows = one.hidden[layer].astype(np.float32)
            found.append(predictor.log_chances(one.drafted, rows, self._embedding[one.drafted.tokens]))
        return np.concatenate(found)

    def _alone(self, trees: Trees) -> NDArray[np.float64]:
        return log_chances(trees.drafted, strengths(self._folder.alone, draft_features(trees.drafted)))


def _groups_of(numbers: Sequence[int], prompts: Sequence[Prompt]) -> Iterator[tuple[str, list[int]]]:
    """Names with the numbers of their prompts."""
    yield OVERALL, list(numbers)
    by_name: dict[str, list[int]] = {}
    for number in numbers:
        by_name.setdefault(f"temperature {temperature_of(number):g}", []).append(number)
    yield from sorted(by_name.items())
    by_category: dict[str, list[int]] = {}
    for number in numbers:
        by_category.setdefault(prompts[number].category, []).append(number)
    yield from sorted((name, members) for name, members in by_category.items() if name != NO_CATEGORY)
