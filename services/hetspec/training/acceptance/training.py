"""From a target and its draft to an acceptance folder: drafts chains, fits a head, writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hetspec.model.acceptance_artefact import AcceptanceArtefact, AcceptanceConfig
from hetspec.model.artefact import MadeFor
from hetspec.model.checkpoint.acceptance_folder import CONFIG_FILE, WEIGHTS_FILE
from hetspec.training.acceptance.data import Chains, Judged, gather
from hetspec.training.acceptance.fit import Fitting, fit
from hetspec.training.acceptance.report import AcceptanceReport
from hetspec.training.corpus.prompts import Prompt, read_prompts
from hetspec.training.early_exit.gather import own_prompts
from hetspec.training.errors import TrainingError
from hetspec.training.progress import Stages
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target
from hetspec.training.weights_file import save_weights

REPORT_FILE = "report.json"
_HELD_OUT = 0.2  # of the prompts


@dataclass(frozen=True, slots=True)
class AcceptancePlan:
    """prompts: of a file; None: the target's own. rounds: chains to draft."""

    target: Path
    draft: Path
    out: Path
    cache_dir: Path
    prompts: Path | None = None
    rounds: int = 4000
    chains: Chains = Chains()
    fitting: Fitting = Fitting()


class AcceptanceTraining:
    def __init__(self, plan: AcceptancePlan, stages: Stages) -> None:
        """Raises CheckpointError, TrainingError, OSError."""
        self._plan = plan
        self._stages = stages
        self._target = Target.open(plan.target, plan.cache_dir)
        self._draft = OpenDraft.open(plan.draft, self._target, plan.cache_dir)

    def run(self) -> AcceptanceReport:
        """Writes the folder, and in it the report, which is of prompts that were not learned from."""
        plan = self._plan
        torch.set_num_threads(plan.chains.threads)
        with self._stages.stage("drafting chains", plan.rounds, "chains") as bar:
            judged = gather(self._target, self._draft, plan.chains, self._prompts(), plan.rounds, bar.advance)
        training, held_out = _split(judged, plan.fitting.seed)
        config = self._config()
        with self._stages.stage("fitting", plan.fitting.epochs, "epochs") as bar:
            weights = fit(
                training, held_out, config.rms_eps, plan.fitting, lambda loss: bar.advance(note=f"loss {loss:.4f}")
            )
        made = AcceptanceArtefact(config, weights)
        report = AcceptanceReport.of(made, held_out)
        _write(plan.out, made, report)
        return report

    def _prompts(self) -> Iterator[Prompt]:
        plan = self._plan
        if plan.prompts is not None:
            return iter(read_prompts(plan.prompts, self._target.text))
        return own_prompts(self._target, plan.chains.seed, plan.chains.threads)

    def _config(self) -> AcceptanceConfig:
        target, draft = self._target, self._draft.checkpoint
        return AcceptanceConfig(
            target=MadeFor(target.checkpoint.config.name, target.fingerprint),
            draft=MadeFor(draft.config.name, draft.fingerprint(self._plan.cache_dir.expanduser())),
            hidden_size=draft.config.hidden_size,
            rms_eps=draft.config.rms_eps,
            blocks=self._plan.fitting.blocks,
            rejection_weight=self._plan.fitting.rejection_weight,
        )


def _split(judged: Judged, seed: int) -> tuple[Judged, Judged]:
    """By prompts. Raises TrainingError where there are too few."""
    numbers = np.unique(judged.prompts)
    held = np.random.default_rng(seed).permutation(numbers)[: max(1, round(len(numbers) * _HELD_OUT))]
    is_held = np.isin(judged.prompts, held)
    if not 0 < np.count_nonzero(is_held) < len(judged):
        raise TrainingError(f"{len(judged)} tokens of {len(numbers)} prompts: too few to learn from some and keep some")
    return judged.only(~is_held), judged.only(is_held)


def _write(folder: Path, made: AcceptanceArtefact, report: AcceptanceReport) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(made.config.to_json())
    save_weights(made.weights, folder / WEIGHTS_FILE)
    (folder / REPORT_FILE).write_text(json.dumps(report.to_json(), indent=2) + "\n")
