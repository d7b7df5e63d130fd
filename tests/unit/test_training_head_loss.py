"""hetspec.training.draft.head_loss, against torch's own cross-entropy."""

from __future__ import annotations

import pytest
import torch

from hetspec.training.draft.head_loss import SampledHead, head_loss

ROWS, HIDDEN, TOKENS, NAMED = 150, 12, 40, 4


@pytest.fixture
def given():
    """x, head, ids, teacher, weights; more rows than a chunk has."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, HIDDEN, generator=generator, dtype=torch.float64, requires_grad=True)
    head = torch.randn(TOKENS, HIDDEN, generator=generator, dtype=torch.float64, requires_grad=True)
    ids = torch.stack([torch.randperm(TOKENS, generator=generator)[:NAMED] for _ in range(ROWS)])
    teacher = torch.rand(ROWS, NAMED, generator=generator, dtype=torch.float64) / NAMED
    teacher[3, 1:] = 0.0
    return x, head, ids, teacher, torch.rand(ROWS, generator=generator, dtype=torch.float64)


def torchs_own(x, head, ids, teacher, weights):
    wanted = torch.zeros(len(x), len(head), dtype=x.dtype).scatter(1, ids, teacher)
    losses = torch.nn.functional.cross_entropy(x @ head.T, wanted, reduction="none")
    return (losses * weights).sum()


def test_loss_and_gradients_are_those_of_torchs_cross_entropy(given):
    ours, theirs = head_loss(*given), torchs_own(*given)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)
    for mine, other in zip(torch.autograd.grad(ours, given[:2]), torch.autograd.grad(theirs, given[:2]), strict=True):
        torch.testing.assert_close(mine, other)


def test_gradients_are_the_slopes_of_the_loss(given):
    x, head, ids, teacher, weights = given
    few = slice(0, 5)
    torch.autograd.gradcheck(lambda x, head: head_loss(x, head, ids[few], teacher[few], weights[few]), (x[few], head))


def test_sample_that_leaves_nothing_out_changes_nothing(given):
    ids = given[2]
    sampled = SampledHead.draw(ids, TOKENS, TOKENS, torch.Generator().manual_seed(0))
    assert sorted(sampled.columns.tolist()) == list(range(TOKENS))
    ours, theirs = head_loss(*given, sampled), torchs_own(*given)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)  # log_counts are float32
    for mine, other in zip(torch.autograd.grad(ours, given[:2]), torch.autograd.grad(theirs, given[:2]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_tokens_that_are_drawn_stand_for_the_others_in_expectation(given):
    x, head, *_ = given
    named, drawn = torch.arange(10), 5
    mass = (x[:8] @ head.T).exp().sum(1)
    sums = torch.zeros(8, dtype=torch.float64)
    draws = 4000
    for seed in range(draws):
        sampled = SampledHead.draw(named, TOKENS, drawn, torch.Generator().manual_seed(seed))
        assert len(sampled.columns) == len(named) + drawn
        sums += (x[:8] @ head[sampled.columns].T + sampled.log_counts).exp().sum(1)
    torch.testing.assert_close(sums / draws, mass, rtol=0.1, atol=0.0)


def test_places_lead_back_to_the_columns():
    named = torch.tensor([[7, 3], [3, 30]])
    sampled = SampledHead.draw(named, TOKENS, 6, torch.Generator().manual_seed(1))
    assert sampled.columns[sampled.places[named]].tolist() == named.tolist()
    assert len(set(sampled.columns.tolist())) == 3 + 6
