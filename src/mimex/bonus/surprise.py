"""Loss and reward for discrete observations."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Loss = Literal["likelihood", "squared"]
"""How discrete observations are predicted and scored."""


def surprisal(logits: Tensor, codes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of one-hot codes, and its excess over the prediction's entropy.

    Squared error does not see novelty in one-hot codes: an untrained model has nearly the same
    error on each. The entropy is subtracted so that what is random, but known, is not rewarded.

    Args:
        logits: ``(..., D)``.
        codes: ``(..., D)`` zeros and ones.
        targets: ``(..., D)`` the masked classes; the softmax is over these alone, and codes without
            a one among them have no surprisal.

    Returns:
        ``(...)`` each, in nats; the second without gradient.
    """
    ones = codes * targets
    count = ones.sum(-1, keepdim=True)
    log_p = logits.masked_fill(~targets, -1e9).log_softmax(-1)
    present = count.squeeze(-1) > 0
    nll = -(ones / count.clamp(min=1) * log_p).sum(-1) * present
    entropy = -(log_p.exp() * log_p).sum(-1).detach() * present
    return nll, nll.detach() - entropy


def window_surprisal(logits: Tensor, codes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """``surprisal`` of windows ``(B, L, D)``, averaged over the steps with targets: ``(B,)`` each.

    The excess is at least 0: a window that is less surprising than expected is not novel.
    """
    steps = targets.any(2)  # (B, L)
    nll, excess = (
        (values * steps).sum(1) / steps.sum(1).clamp(min=1)
        for values in surprisal(logits, codes, targets)
    )
    return nll, excess.clamp(min=0)
