"""Fits an early-exit network to trees by gradient, and keeps it as it was when best on what is held out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hetspec.training.early_exit.network import DraftAlone, Families, Network, family_loss

_WARM_STEPS = 20
_LENS = "lens."  # of parameters' names


@dataclass(frozen=True, slots=True)
class Fitting:
    """seed: of all that is drawn. lens_rate: of the lens, which knows most of it before."""

    seed: int = 0
    epochs: int = 4
    rate: float = 1e-3
    lens_rate: float = 2e-4
    decay: float = 0.05


def fit(
    network: Network | DraftAlone,
    learned: Sequence[Families],
    held_out: Families,
    fitting: Fitting,
    on_epoch: Callable[[float], None] = lambda loss: None,
) -> float:
    """learned: a step each. Leaves the network as it was when best on what is held out; returns that loss."""
    torch.manual_seed(fitting.seed)
    network.begin(learned[0])
    groups = _groups(network, fitting)
    optimiser = torch.optim.AdamW(groups, weight_decay=fitting.decay)
    usual = [group["lr"] for group in optimiser.param_groups]
    best, state = loss_of(network, held_out), copy.deepcopy(network.state_dict())
    step, steps = 0, fitting.epochs * len(learned)
    for _ in range(fitting.epochs):
        network.train()
        for place in torch.randperm(len(learned)).tolist():
            for group, rate in zip(optimiser.param_groups, usual, strict=True):
                group["lr"] = rate * min(1.0, (step + 1) / _WARM_STEPS) * (1 - step / steps)
            loss = family_loss(network(learned[place]), learned[place])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step += 1
        now = loss_of(network, held_out)
        on_epoch(now)
        if now < best:
            best, state = now, copy.deepcopy(network.state_dict())
    network.load_state_dict(state)
    network.eval()
    return best


def _groups(network: Network | DraftAlone, fitting: Fitting) -> list[dict[str, object]]:
    lens = [p for name, p in network.named_parameters() if name.startswith(_LENS)]
    rest = [p for name, p in network.named_parameters() if not name.startswith(_LENS)]
    return [{"params": rest, "lr": fitting.rate}, *([{"params": lens, "lr": fitting.lens_rate}] if lens else [])]


@torch.no_grad()
def loss_of(network: Network | DraftAlone, families: Families) -> float:
    network.eval()
    return float(family_loss(network(families), families))
