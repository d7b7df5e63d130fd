"""hetspec.training.draft.agreement, against choices that are drawn, and against slopes by differences."""

from __future__ import annotations

import pytest
import torch

from hetspec.training.draft.agreement import agreement, disagreement
from hetspec.training.draft.head_loss import SampledHead, Teaching, head_loss

ROWS, TOKENS, NAMED = 4, 9, 3


@pytest.fixture
def given():
    """logits [rows, tokens], ids and teacher [rows, named]."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(ROWS, TOKENS, generator=generator, dtype=torch.float64) * 2
    ids = torch.stack([torch.randperm(TOKENS, generator=generator)[:NAMED] for _ in range(ROWS)])
    teacher = torch.rand(ROWS, NAMED, generator=generator, dtype=torch.float64) / NAMED
    teacher[2, 1:] = 0.0
    return logits, ids, teacher


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_chance_is_how_often_both_choose_alike(given, temperature):
    logits, ids, teacher = given
    lacking = TOKENS  # the teacher's share of what the draft does not know stands there
    wanted = torch.zeros(ROWS, TOKENS + 1, dtype=torch.float64).scatter(1, ids, teacher)
    wanted[:, lacking] = 1 - teacher.sum(1)
    drafted = torch.nn.functional.pad(logits, (0, 1), value=-torch.inf)
    noise = -torch.empty(100_000, 1, TOKENS + 1).exponential_(generator=torch.Generator().manual_seed(0)).log()
    alike = (wanted.log() + temperature * noise).argmax(-1) == (drafted + temperature * noise).argmax(-1)
    chance, _ = disagreement(logits, torch.zeros(TOKENS), ids, teacher, temperature)
    torch.testing.assert_close(1 - chance, alike.double().mean(0), rtol=0.0, atol=0.005)


def test_equal_distributions_agree_where_they_share_tokens():
    shares = torch.tensor([[0.5, 0.3, 0.1]])
    found = agreement(shares, torch.tensor([0.1]), shares)  # of clocks of 1.1 in all, those of 0.9 are shared
    torch.testing.assert_close(found, torch.tensor([0.9 / 1.1]))
    whole = torch.tensor([[0.5, 0.3, 0.2, 0.0]])
    torch.testing.assert_close(agreement(whole, torch.zeros(1), whole), torch.ones(1))


def test_agreement_lies_between_independent_choices_and_the_best_coupling(given):
    logits, ids, teacher = given
    teacher = teacher / teacher.sum(1, keepdim=True)
    shares = torch.softmax(logits, 1).gather(1, ids)
    chance = agreement(teacher, torch.zeros(ROWS), shares)
    assert (chance >= (teacher * shares).sum(1) - 1e-12).all()
    assert (chance <= torch.minimum(teacher, shares).sum(1) + 1e-12).all()


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_slopes_are_those_of_the_chance(given, temperature):
    logits, ids, teacher = given
    log_counts = torch.linspace(0.0, 1.0, TOKENS, dtype=torch.float64)
    log_counts[ids] = 0.0
    _, slopes = disagreement(logits, log_counts, ids, teacher, temperature)
    step = 1e-6
    for token in range(TOKENS):
        moved = torch.zeros(TOKENS, dtype=torch.float64)
        moved[token] = step
        after, before = (
            disagreement(logits + sign * moved, log_counts, ids, teacher, temperature)[0] for sign in (1, -1)
        )
        torch.testing.assert_close(slopes[:, token], (after - before) / (2 * step), rtol=1e-5, atol=1e-8)


def test_head_loss_weighs_cross_entropy_and_choices(given):
    logits, ids, teacher = given
    x, head = logits.requires_grad_(), torch.eye(TOKENS, dtype=torch.float64)
    weights = torch.tensor([1.0, 0.5, 2.0, 0.0], dtype=torch.float64)
    teaching = Teaching(0.75, (0.9, 0.4))
    loss = head_loss(x, head, ids, teacher, weights, teaching=teaching)
    choices = [
        disagreement(logits.detach(), torch.zeros(TOKENS), ids, teacher, temperature) for temperature in (0.9, 0.4)
    ]
    entropy = head_loss(x, head, ids, teacher, weights)
    mean = sum((chance * weights).sum() for chance, _ in choices) / 2
    assert loss.item() == pytest.approx(0.25 * entropy.item() + 0.75 * mean.item(), rel=1e-12)
    slopes = 0.25 * torch.autograd.grad(entropy, x)[0] + 0.375 * sum(s for _, s in choices) * weights[:, None]
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], slopes)


def test_a_taught_head_comes_to_choose_as_the_teacher_does():
    """A head of too few dimensions to be the teacher: what is taught decides in what it is near."""
    generator = torch.Generator().manual_seed(5)
    teacher = torch.softmax(2 * torch.randn(60, 12, generator=generator), 1)
    ids, weights = torch.arange(12).expand(60, 12), torch.ones(60)
    sampled = SampledHead.draw(ids, 12, 1, generator)

    def chance_after(teaching: Teaching) -> float:
        torch.manual_seed(0)
        x, head = torch.randn(60, 3, requires_grad=True), torch.randn(12, 3, requires_grad=True)
        optimiser = torch.optim.Adam([x, head], lr=0.05)
        for _ in range(400):
            optimiser.zero_grad()
            head_loss(x, head, ids, teacher, weights, sampled, teaching).backward()
            optimiser.step()
        return float(disagreement((x @ head.T).detach(), torch.zeros(12), ids, teacher, 0.5)[0].mean())

    assert chance_after(Teaching(0.9, (0.5,))) < 0.9 * chance_after(Teaching())
