"""Discrete input: how much more surprising a hidden code is than the model itself expected.

Squared error cannot see novelty in one-hot codes: a model that is sure of nothing has nearly the
same error on every code, seen or not. Codes are predicted as what they are, one of D, by softmax;
their negative log-likelihood is what is learned. A walk that could go four ways is surprising by
log 4 however well it is known, so the entropy of the prediction, the surprise that the model
expects, is taken off before it is paid.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from mimex.bonus.autoencoder import MaskedSequenceAutoencoder

Loss = Literal["likelihood", "squared"]
"""How discrete observations are predicted and scored."""


def check_loss(loss: str) -> None:
    """Refuses unknown losses."""
    if loss not in get_args(Loss):
        raise ValueError(f"loss={loss!r} is unknown: use 'likelihood' or 'squared'.")


def surprise(logits: Tensor, codes: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The surprise of codes under a prediction, and that beyond what the prediction expects.

    Args:
        logits: ``(..., D)``.
        codes: ``(..., D)`` zeros and ones.
        hidden: ``(..., D)``: which of the numbers are asked for; codes without a one among them
            have no surprise.

    Returns:
        Negative log-likelihoods, and those less the entropy, without gradient: ``(...)`` in nats.
    """
    asked = codes * hidden
    ones = asked.sum(-1, keepdim=True)
    log_p = logits.masked_fill(~hidden, -1e9).log_softmax(-1)
    told = ones.squeeze(-1) > 0
    likelihood = -(asked / ones.clamp(min=1) * log_p).sum(-1) * told
    entropy = -(log_p.exp() * log_p).sum(-1).detach() * told
    return likelihood, likelihood.detach() - entropy


def window_surprise(
    model: MaskedSequenceAutoencoder,
    features: Tensor,
    hidden: Tensor,
    valid: Tensor,
    actions: Tensor | None,
    targets: Tensor,
) -> tuple[Tensor, Tensor]:
    """What K masks pay for windows of codes ``(K, B)``, and the loss of each window ``(B,)``.

    The arguments are those of ``MaskedSequenceAutoencoder.errors``.
    """
    masks, batch = hidden.shape[:2]
    if hidden.ndim == 4:
        logits = model.numbers(features, hidden, valid, actions)
        codes, asked = features.expand_as(logits), targets & valid.unsqueeze(2)
        scored = asked.any(-1)
    else:
        window = torch.arange(masks * batch, device=hidden.device) % batch
        asked = (targets & valid).flatten(0, 1)
        if not bool(asked.any()):
            return features.new_zeros(masks, batch), features.new_zeros(batch)
        flat = hidden.flatten(0, 1)
        decoded, rows, scored = model.decoded(features, window, flat, valid, actions, asked)
        logits, codes = model.decoder_pred(decoded), features.flatten(0, 1)[rows]
        asked = torch.ones_like(codes, dtype=torch.bool)
    likelihood, beyond = (
        (values * scored).sum(-1) / scored.sum(-1).clamp(min=1)
        for values in surprise(logits, codes, asked)
    )
    loss = likelihood.view(masks, batch).mean(0)
    return beyond.view(masks, batch).clamp(min=0), loss
