"""From a target and its draft to an early-exit folder: grows trees, fits a predictor, chooses its layer, writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hetspec.model.artefact import MadeFor
from hetspec.model.checkpoint.early_exit_folder import CONFIG_FILE, WEIGHTS_FILE
from hetspec.model.early_exit_artefact import DRAFT_ALONE, EarlyExitArtefact, EarlyExitConfig
from hetspec.training.corpus.prompts import Prompt, read_prompts
from hetspec.training.early_exit.evaluation import Measurement
from hetspec.training.early_exit.fit import Fitting
from hetspec.training.early_exit.gather import Growing, TreeGatherer, own_prompts
from hetspec.training.early_exit.layers import LayerFits, Split, is_learned, usual_layers
from hetspec.training.early_exit.network import DraftAlone, Network, Shape
from hetspec.training.early_exit.report import Candidate, EarlyExitReport
from hetspec.training.early_exit.tables import Tables
from hetspec.training.errors import TrainingError
from hetspec.training.progress import Stages
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target
from hetspec.training.weights_file import save_weights

REPORT_FILE = "report.json"


@dataclass(frozen=True, slots=True)
class EarlyExitPlan:
    """prompts: of a file; None: the target's own. rounds: trees to grow. layers: candidates; none: `usual_layers`."""

    target: Path
    draft: Path
    out: Path
    cache_dir: Path
    prompts: Path | None = None
    rounds: int = 2000
    recall: float = 0.995
    layers: Sequence[int] = ()
    growing: Growing = Growing()
    shape: Shape = Shape()
    fitting: Fitting = Fitting()


class EarlyExitTraining:
    def __init__(self, plan: EarlyExitPlan, stages: Stages) -> None:
        """Raises CheckpointError, TrainingError, OSError."""
        self._plan = plan
        self._stages = stages
        self._target = Target.open(plan.target, plan.cache_dir)
        self._draft = OpenDraft.open(plan.draft, self._target, plan.cache_dir)
        count = self._target.checkpoint.config.n_layers
        self._layers = sorted(set(plan.layers)) or usual_layers(count)
        for layer in self._layers:
            if not 1 <= layer < count:
                raise TrainingError(f"layers: {layer}, must be in [1, {count - 1}]")

    def run(self) -> EarlyExitReport:
        """Writes the folder, and in it the report, which is of the prompts that were not learned from."""
        plan = self._plan
        torch.set_num_threads(plan.growing.threads)
        with TreeGatherer(self._target, self._draft, plan.growing, self._layers, is_learned) as gatherer:
            with self._stages.stage("growing trees", plan.rounds, "trees") as bar:
                used = gatherer.gather(self._prompts(), plan.rounds, bar.advance)
            split = Split.of(gatherer.trees(), gatherer.texts())
            tables = Tables.of(self._target.checkpoint)
            fits = LayerFits(split, tables, plan.shape, plan.fitting, plan.recall, self._stages)
            alone = fits.alone()
            tried = [fits.at(layer) for layer in self._layers]
            best, network = max(tried, key=lambda one: self._layers_saved(one[0]))
            folder = self._folder(best, network, alone)
            _write(plan.out, folder)
            measurement = Measurement(self._target, self._draft, folder, plan.growing)
            report = measurement.report(split.held, used, gatherer.target, [candidate for candidate, _ in tried])
        (plan.out / REPORT_FILE).write_text(json.dumps(report.to_json(), indent=2) + "\n")
        return report

    def _prompts(self) -> Iterator[Prompt]:
        plan = self._plan
        if plan.prompts is not None:
            return iter(read_prompts(plan.prompts, self._target.text))
        return own_prompts(self._target, plan.growing.seed, plan.growing.threads)

    def _layers_saved(self, candidate: Candidate) -> float:
        return candidate.cut.pruned * (self._target.checkpoint.config.n_layers - candidate.layer)

    def _folder(self, chosen: Candidate, network: Network, alone: DraftAlone) -> EarlyExitArtefact:
        target, draft, shape = self._target, self._draft.checkpoint, self._plan.shape
        weights = network.weights()
        config = EarlyExitConfig(
            target=MadeFor(target.checkpoint.config.name, target.fingerprint),
            draft=MadeFor(draft.config.name, draft.fingerprint(self._plan.cache_dir.expanduser())),
            hidden_size=target.checkpoint.config.hidden_size,
            rms_eps=target.checkpoint.config.rms_eps,
            layer=chosen.layer,
            rank=shape.rank,
            bends=shape.bends,
            answers=shape.answers,
            row_features=shape.row_features,
            units=shape.units,
            recall=self._plan.recall,
            threshold=chosen.threshold,
        )
        named = {DRAFT_ALONE + name: values for name, values in alone.weights().items()}
        return EarlyExitArtefact(config, weights | named)


def _narrowed(values: NDArray[np.float32]) -> NDArray[np.floating]:
    """In float16 where that loses nothing."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float16)
    return narrow if np.array_equal(narrow, values) else values


def _write(out: Path, folder: EarlyExitArtefact) -> None:
    out.mkdir(parents=True, exist_ok=True)
    save_weights({name: _narrowed(values) for name, values in folder.weights.items()}, out / WEIGHTS_FILE)
    (out / CONFIG_FILE).write_text(folder.config.to_json())
