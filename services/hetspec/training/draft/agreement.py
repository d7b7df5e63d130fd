"""How often a draft model that knows the noise says what its target says, as something to teach it.

Both choose argmax(log p + T g) by the same noise g, which is the same as by the same exponential clocks. Token x is
both choices where its clock is ahead of every other's by what that one's share is larger, in either distribution; so
they agree on it with chance 1 / sum over y of max(p_y / p_x, q_y / q_x).
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-12  # share that is divided by


def agreement(teacher: Tensor, missing: Tensor, draft: Tensor) -> Tensor:
    """Chance of the same choice, [rows].

    teacher, draft: [rows, k], shares of the same k tokens; 0 of both stands for nothing. missing: [rows], share that
    the teacher gives to tokens that the draft never proposes. What is left of the draft's share goes to tokens that the
    teacher never says.
    """
    others = (1 - draft.sum(1)).clamp(min=0)
    of_teacher, of_draft = (1 / shares.clamp(min=_LEAST) for shares in (teacher, draft))
    # [rows, x, y]
    larger = torch.maximum(of_teacher[:, :, None] * teacher[:, None], of_draft[:, :, None] * draft[:, None])
    against = larger.sum(-1) + of_teacher * missing[:, None] + of_draft * others[:, None]
    return (1 / against.clamp(min=1)).where(teacher * draft > 0, 0).sum(1)


def disagreement(
    logits: Tensor, log_counts: Tensor, ids: Tensor, teacher: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Chance of different choices at a temperature, [rows], and its slopes by the logits, like them.

    logits: [rows, tokens]. log_counts: [tokens], how many tokens each stands for. ids, teacher: [rows, k], as of
    `head_loss`; what the teacher's shares lack of 1 is taken for one token that the head does not know.
    """
    known = teacher > 0
    lacking = (1 - teacher.sum(1, keepdim=True)).clamp(min=0)
    wanted = torch.cat((teacher, lacking), 1).pow(1 / temperature)
    wanted /= wanted.sum(1, keepdim=True).clamp(min=_LEAST)
    shares = torch.softmax(logits / temperature + log_counts, 1)
    with torch.enable_grad():
        drafted = (shares.gather(1, ids) * known).requires_grad_()
        chance = agreement(wanted[:, :-1], wanted[:, -1], drafted)
        (gains,) = torch.autograd.grad(chance.sum(), drafted)
    gains = gains * drafted.detach()
    slopes = shares.mul_(gains.sum(1, keepdim=True)).scatter_add_(1, ids, -gains)
    return 1 - chance.detach(), slopes.div_(temperature)
