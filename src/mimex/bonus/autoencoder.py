"""The masked sequence autoencoder: how well can the hidden part of a window be filled in?

Savings over the textbook arithmetic, none of which changes a number:

- only visible steps are embedded, and only scored steps are decoded and predicted;
- the last decoder block computes queries of scored steps alone;
- several masks are one batched pass over features stored once;
- the prediction layer and its squared error are one operation that keeps a single array of the
  features' width (``squared_error``), where autograd would keep three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mimex.bonus.size import PAPER, AutoencoderSize
from mimex.nn.transformer import Block, key_bias_of, run, sinusoidal_positions, squared_error


class MaskedSequenceAutoencoder(nn.Module):
    """Predicts the hidden steps (or numbers) of windows ``(B, L, D)`` from the visible ones.

    Whole hidden steps go the way of a masked autoencoder: visible steps through the encoder, a
    shared mask token at each hidden position, a light decoder. Hidden single numbers are set to
    zero and all steps go through the decoder alone.

    Args:
        feature_dim: Numbers a step, D.
        length: Steps a window, L.
        size: Widths and depths; ``LARGER`` is the paper's larger decoder.
        action_dim: If given, ``error`` takes actions, and each one conditions the step it led to,
            visible or hidden.
    """

    def __init__(
        self,
        feature_dim: int,
        length: int,
        size: AutoencoderSize = PAPER,
        action_dim: int | None = None,
    ) -> None:
        super().__init__()
        if min(feature_dim, length) < 1:
            raise ValueError(f"feature_dim={feature_dim}, length={length}: both must be 1 or more.")
        self.size = size
        self.feature_dim, self.length, self.action_dim = feature_dim, length, action_dim
        self.encoder_embed = nn.Linear(feature_dim, size.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size.width)) if size.class_token else None
        self.blocks = nn.ModuleList(
            Block(size.width, size.heads, size.mlp_ratio) for _ in range(size.depth)
        )
        self.norm = nn.LayerNorm(size.width, eps=1e-6)
        self.decoder_embed = nn.Linear(size.width, size.decoder_width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, size.decoder_width))
        self.decoder_blocks = nn.ModuleList(
            Block(size.decoder_width, size.decoder_heads, size.mlp_ratio)
            for _ in range(size.decoder_depth)
        )
        self.decoder_norm = nn.LayerNorm(size.decoder_width, eps=1e-6)
        self.decoder_pred = nn.Linear(size.decoder_width, feature_dim)
        if action_dim is not None:
            self.action_embed = nn.Linear(action_dim, size.width)
            self.decoder_action_embed = nn.Linear(action_dim, size.decoder_width)
        self.positions: Tensor
        self.decoder_positions: Tensor
        for name, width in (("positions", size.width), ("decoder_positions", size.decoder_width)):
            self.register_buffer(name, sinusoidal_positions(length, width), persistent=False)
        self.apply(_initialise)
        nn.init.normal_(self.mask_token, std=0.02)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=0.02)

    def error(
        self,
        features: Tensor,
        hidden: Tensor,
        valid: Tensor | None = None,
        actions: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> Tensor:
        """The mean squared error of the hidden part of each window: ``(B,)``, differentiable.

        Args:
            features: ``(B, L, D)``; gradients do not flow to them.
            hidden: ``(B, L)`` whole steps or ``(B, L, D)`` single numbers.
            valid: ``(B, L)``; steps that are not valid are neither seen nor scored.
            actions: ``(B, L, A)``, for a model with ``action_dim``.
            targets: The hidden entries to score, of the shape of ``hidden``; all of them when
                left out. A window without any has the error zero.
        """
        targets = hidden if targets is None else targets
        return self.errors(features, hidden[None], valid, actions, targets[None])[0]

    def errors(
        self,
        features: Tensor,
        hidden: Tensor,
        valid: Tensor | None,
        actions: Tensor | None,
        targets: Tensor,
    ) -> Tensor:
        """As ``error`` for K masks at once: ``hidden (K, B, L[, D])`` gives ``(K, B)``."""
        features = features.detach()
        if valid is not None:
            targets = targets & (valid if hidden.ndim == 3 else valid.unsqueeze(2))
        if not bool(targets.any()):
            return features.new_zeros(hidden.shape[:2])
        if hidden.ndim == 4:
            residual = self.numbers(features, hidden, valid, actions) - features
            squares: Tensor = residual.square() * targets
            return squares.sum((2, 3)) / targets.sum((2, 3)).clamp(min=1)
        masks, batch = hidden.shape[:2]
        window = torch.arange(batch, device=hidden.device)
        if masks == 1:
            rows = back = window
        else:
            # Masks drawn twice for a window are computed once: of the five masks that keep one
            # step of five, five draws hit 3.4.
            equal = (hidden.unsqueeze(1) == hidden).all(3)  # (K, K, B)
            first = equal.byte().argmax(1) * batch + window  # (K, B): row of the first such draw
            rows, back = torch.unique(first, return_inverse=True)
        hidden, targets = hidden.flatten(0, 1)[rows], targets.flatten(0, 1)[rows]  # (R, L)
        decoded, steps, real = self.decoded(features, rows % batch, hidden, valid, actions, targets)
        pred, flat = self.decoder_pred, features.flatten(0, 1)
        decoded, steps = decoded.flatten(0, 1), steps.flatten()
        squares = squared_error(decoded, pred.weight, pred.bias, flat, steps)
        errors: Tensor = (squares.view(real.shape) * real).sum(1) / real.sum(1).clamp(min=1)
        return errors[back].view(masks, batch)

    @torch.no_grad()
    def reconstruct(
        self,
        features: Tensor,
        hidden: Tensor,
        valid: Tensor | None = None,
        actions: Tensor | None = None,
    ) -> Tensor:
        """The windows ``(B, L, D)`` with what is hidden filled in; ``error`` has the arguments."""
        if hidden.ndim == 3:
            filled = self.numbers(features, hidden[None], valid, actions)[0]
            return torch.where(hidden, filled, features)
        window = torch.arange(len(features), device=features.device)
        real = hidden if valid is None else hidden & valid
        decoded, rows, ok = self.decoded(features, window, hidden, valid, actions, real)
        out = features.flatten(0, 1).clone()
        out[rows[ok]] = self.decoder_pred(decoded[ok])
        return out.view_as(features)

    def decoded(
        self,
        features: Tensor,
        window: Tensor,
        hidden: Tensor,
        valid: Tensor | None,
        actions: Tensor | None,
        targets: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the decoder makes of the targets, before the prediction layer.

        Returns:
            ``(R, T, c)``, the row of ``features.flatten(0, 1)`` that each stands for ``(R, T)``,
            and which of them are real ``(R, T)``.
        """
        batch, length = features.shape[:2]
        visible = ~hidden if valid is None else ~hidden & valid[window]
        shown, shown_ok = places(visible)  # (R, V)
        asked, asked_ok = places(targets)  # (R, T)
        flat = features.reshape(batch * length, -1)
        first = (window * length).unsqueeze(1)  # step l of row r is row first[r] + l of flat

        # Encode the visible steps, and the class token behind them.
        if shown.numel() < len(flat):
            x = self.encoder_embed(flat[(first + shown).flatten()])
        else:  # several masks: embed each step once, then pick
            x = self.encoder_embed(flat)[(first + shown).flatten()]
        x = x.view(*shown.shape, self.size.width) + self.positions[shown]  # (R, V, C)
        if actions is not None:
            flat_actions = actions.reshape(batch * length, -1)
            x = x + self.action_embed(flat_actions)[first + shown]
        if self.cls_token is not None:
            x = torch.cat([x, self.cls_token.expand(len(x), -1, -1)], dim=1)
            shown_ok = nn.functional.pad(shown_ok, (0, 1), value=True)
        key_bias = key_bias_of(shown_ok)
        x = run(self.blocks, x, key_bias)
        x = self.decoder_embed(self.norm(x))  # (R, V + 1, c)

        # Decode. Scored steps go first, so that the last block can compute them alone: attention
        # knows no order beyond the positions that are added. The class token has none.
        query = self.mask_token + self.decoder_positions[asked]  # (R, T, c)
        seen = x[:, : shown.shape[1]] + self.decoder_positions[shown]
        if actions is not None:
            embedded = self.decoder_action_embed(flat_actions)
            query, seen = query + embedded[first + asked], seen + embedded[first + shown]
        x = torch.cat([query, seen, x[:, shown.shape[1] :]], dim=1)
        x = self._decode(x, key_bias_of(torch.cat([asked_ok, shown_ok], dim=1)), asked.shape[1])
        return x, first + asked, asked_ok

    def numbers(
        self, features: Tensor, hidden: Tensor, valid: Tensor | None, actions: Tensor | None
    ) -> Tensor:
        """Predictions ``(K, B, L, D)`` where ``hidden`` of that shape hides single numbers."""
        x = self.decoder_embed(self.encoder_embed(features.masked_fill(hidden, 0.0)))
        x = x + self.decoder_positions  # (K, B, L, c)
        if actions is not None:
            x = x + self.decoder_action_embed(actions)
        key_bias = None if valid is None else key_bias_of(valid.repeat(len(hidden), 1))
        x = self._decode(x.flatten(0, 1), key_bias, x.shape[2])
        predictions: Tensor = self.decoder_pred(x).view(hidden.shape)
        return predictions

    def _decode(self, x: Tensor, key_bias: Tensor | None, scored: int) -> Tensor:
        """Runs the decoder and keeps the leading ``scored`` tokens."""
        x = run(self.decoder_blocks, x, key_bias, scored)
        decoded: Tensor = self.decoder_norm(x[:, :scored])
        return decoded

    def load_published(self, state_dict: Mapping[str, Any]) -> None:
        """Loads the weights of the published model, which has our parameter names.

        Its position tables are left out (ours are the same numbers). Whether there is a class
        token is theirs to say; load before an optimizer is made (``MIMEx.load_published`` does).
        """
        weights = {k: v for k, v in state_dict.items() if not k.endswith("pos_embed.pe")}
        token = self.cls_token
        if "cls_token" not in weights:
            self.cls_token = None
        elif token is None:
            self.cls_token = nn.Parameter(self.mask_token.new_zeros(1, 1, self.size.width))
        try:
            self.load_state_dict(weights)
        except RuntimeError as error:
            self.cls_token = token
            raise ValueError(
                "these are not the weights of a published model of this size (the paper's is "
                f"mimex.PAPER; this: feature_dim={self.feature_dim}, {self.size}): {error}"
            ) from error


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def places(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The places of True in each row ``(R, L)``: ``(R, most)``, and which of them are real."""
    counts = chosen.sum(1)
    most = int(counts.max()) if len(counts) else 0
    if int(counts.sum()) == most * len(counts):  # the same number in every row
        return chosen.nonzero()[:, 1].view(len(chosen), most), chosen.new_ones(len(chosen), most)
    first = chosen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
    return first, torch.arange(most, device=chosen.device) < counts.unsqueeze(1)
