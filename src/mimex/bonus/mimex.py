"""MIMEx: intrinsic rewards from masked input modeling (Lin & Jabri, 2023), as in its section 4.1.

The input is a window of the last T observations' features, ``(B, L, D)`` with L = T. A part of it
is masked (``masking.py``) and predicted from the rest. The prediction error is the loss and, before
the optimizer step, the reward of the window's newest step. B is K times the windows for K masks.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from mimex.bonus.inputs import isolated
from mimex.bonus.masking import FeatureMask, MaskDistribution, TimeMask
from mimex.bonus.prediction import MaskedPrediction, Shared
from mimex.bonus.size import COMPACT, AutoencoderSize
from mimex.bonus.surprise import Loss, window_surprisal
from mimex.data.checks import require_choice
from mimex.nn.transformer import blocks, init_linear, key_bias, sinusoidal_positions
from mimex.types import Window

MaskType = Literal["time", "feature", "tube"]
Padding = Literal["ignore", "zeros"]


class TimeMaskedAutoencoder(nn.Module):
    """The paper's model for time masking: a masked autoencoder (MAE) over the steps of a window.

    Args:
        feature_dim: Features per step, D.
        length: Window length, L.
        size: Widths C (encoder) and c (decoder), depths and heads.
        action_dim: If given, the action that led to each step is visible even if the step is not.
    """

    def __init__(
        self, feature_dim: int, length: int, size: AutoencoderSize, action_dim: int | None = None
    ) -> None:
        super().__init__()
        self.encoder_embed = nn.Linear(feature_dim, size.width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size.width)) if size.class_token else None
        self.blocks = blocks(size.depth, size.width, size.heads, size.mlp_ratio)
        self.norm = nn.LayerNorm(size.width, eps=1e-6)
        self.decoder_embed = nn.Linear(size.width, size.decoder_width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, size.decoder_width))
        self.decoder_blocks = blocks(
            size.decoder_depth, size.decoder_width, size.decoder_heads, size.mlp_ratio
        )
        self.decoder_norm = nn.LayerNorm(size.decoder_width, eps=1e-6)
        self.decoder_pred = nn.Linear(size.decoder_width, feature_dim)
        if action_dim is not None:
            self.action_embed = nn.Linear(action_dim, size.width)
            self.decoder_action_embed = nn.Linear(action_dim, size.decoder_width)
        self.positions = sinusoidal_positions(length, size.width)
        self.decoder_positions = sinusoidal_positions(length, size.decoder_width)
        self.apply(init_linear)
        nn.init.normal_(self.mask_token, std=0.02)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=0.02)

    def forward(
        self, x: Tensor, masked: Tensor, targets: Tensor, valid: Tensor, actions: Tensor | None
    ) -> Tensor:
        """Predicts all steps of ``x (B, L, D)`` from the visible ones: ``(B, L, D)``.

        ``masked``, ``targets`` and ``valid`` are ``(B, L)``, ``actions`` ``(B, L, A)``. Steps that
        are neither visible nor a target are ignored.
        """
        batch, length = masked.shape
        # Mask: keep the visible steps. Attention ignores what fills up windows with less than V.
        visible = valid & ~masked
        most = int(visible.sum(1).max())  # V
        kept = visible.byte().argsort(stable=True, dim=1, descending=True)[:, :most]
        rows = torch.arange(batch, device=x.device).unsqueeze(1)
        real = visible[rows, kept]  # (B, V)

        # Embed and encode the visible steps.
        h = self.encoder_embed(x[rows, kept]) + self.positions[kept]  # (B, V, C)
        if actions is not None:
            h = h + self.action_embed(actions[rows, kept])
        keys = real
        if self.cls_token is not None:  # last, because it has no position: (B, V + 1, C)
            h = torch.cat([h, self.cls_token.expand(batch, -1, -1)], dim=1)
            keys = nn.functional.pad(real, (0, 1), value=True)
        bias = key_bias(keys)
        for block in self.blocks:
            h = block(h, bias)
        h = self.decoder_embed(self.norm(h))  # (B, V or V + 1, c)

        # Decode, with the mask token at all other steps.
        masks = self.mask_token.expand(batch, length, -1)
        steps = torch.where(real.unsqueeze(2), h[:, :most], self.mask_token)
        y = masks.index_put((rows, kept), steps) + self.decoder_positions  # (B, L, c)
        if actions is not None:
            y = y + self.decoder_action_embed(actions)
        y = torch.cat([y, h[:, most:]], dim=1)
        bias = key_bias(torch.cat([visible | targets & valid, keys[:, most:]], dim=1))
        for block in self.decoder_blocks:
            y = block(y, bias)
        prediction: Tensor = self.decoder_pred(self.decoder_norm(y[:, :length]))  # (B, L, D)
        return prediction


class FeatureMaskedDecoder(nn.Module):
    """The paper's model for feature masking: the decoder alone, with masked features set to 0.

    The arguments are those of ``TimeMaskedAutoencoder``; of ``size`` only the decoder's are used.
    """

    def __init__(
        self, feature_dim: int, length: int, size: AutoencoderSize, action_dim: int | None = None
    ) -> None:
        super().__init__()
        width = size.decoder_width
        self.embed = nn.Linear(feature_dim, width)
        self.blocks = blocks(size.decoder_depth, width, size.decoder_heads, size.mlp_ratio)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pred = nn.Linear(width, feature_dim)
        if action_dim is not None:
            self.action_embed = nn.Linear(action_dim, width)
        self.positions = sinusoidal_positions(length, width)
        self.apply(init_linear)

    def forward(
        self, x: Tensor, masked: Tensor, targets: Tensor, valid: Tensor, actions: Tensor | None
    ) -> Tensor:
        """Predicts all features: ``(B, L, D)``. ``masked`` and ``targets`` are ``(B, L, D)``."""
        h = self.embed(x.masked_fill(masked, 0.0)) + self.positions  # (B, L, c)
        if actions is not None:
            h = h + self.action_embed(actions)
        bias = key_bias(valid)
        for block in self.blocks:
            h = block(h, bias)
        prediction: Tensor = self.pred(self.norm(h))  # (B, L, D)
        return prediction


def squared_error(prediction: Tensor, x: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error over the targets of each window: ``(B, L, D)`` gives ``(B,)``."""
    squares = (prediction - x).square() * targets
    return squares.sum((1, 2)) / targets.sum((1, 2)).clamp(min=1)


class MIMEx(MaskedPrediction):
    """Rewards the error of a masked autoencoder on the window that ends at a step.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        length: Window length, T.
        mask_ratio: Masked fraction, before rounding (``effective_ratio`` is after it).
        masks: Masks per window, K; their errors are averaged.
        mask_type: "time" masks whole steps (the paper's default, with 0.7), "feature" features of
            single steps, "tube" features in all steps of the window.
        mask: Another mask distribution (``mimex.masks``).
        size: Model size; ``PAPER``, ``LARGER`` (the paper's larger decoder), ``COMPACT``.
        lr: Adam learning rate (the paper: 1e-4); default from benchmarks/plans/variants.toml.
        actions: Condition on actions, so that the agent's own noise is not novel (not published).
        action_dim: Action dimensions, or number of discrete actions; implies ``actions``.
        padding: Steps before the episode: "ignore", or "zeros" for an all-zero input that is
            masked and scored like any other, as published.
        discrete_obs: Whether observations are discrete (integers or one-hot codes). If None, the
            wrapped environment's observation space decides; without one, windows of integers are.
        loss: For discrete observations: "likelihood" (softmax, and ``surprisal`` as the reward) or
            "squared" error, as for all other observations.
        shared: ``encoder``, ``normalize``, ``device``, ``seed``: see ``MaskedPrediction``.
    """

    no_settings: ClassVar[tuple[str, ...]] = ("device", "seed")

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 5,
        mask_ratio: float = 0.8,
        masks: int = 1,
        *,
        mask_type: MaskType = "feature",
        mask: MaskDistribution | None = None,
        size: AutoencoderSize = COMPACT,
        lr: float = 3e-3,
        actions: bool = False,
        action_dim: int | None = None,
        padding: Padding = "ignore",
        discrete_obs: bool | None = None,
        loss: Loss = "likelihood",
        **shared: Unpack[Shared],
    ) -> None:
        require_choice(MaskType, mask_type=mask_type)
        require_choice(Padding, padding=padding)
        require_choice(Loss, loss=loss)
        self.size, self.padding, self.discrete_obs, self.loss = size, padding, discrete_obs, loss
        if mask is None and mask_type == "time":
            mask = TimeMask(mask_ratio)
        super().__init__(
            feature_dim,
            length=length,
            mask=mask or FeatureMask(mask_ratio, tube=mask_type == "tube"),
            masks=masks,
            lr=lr,
            uses_actions=actions,
            action_dim=action_dim,
            **shared,
        )

    def build(self, feature_dim: int) -> nn.Module:
        """The model for the mask type."""
        model = FeatureMaskedDecoder if self.mask.per_feature else TimeMaskedAutoencoder
        return model(feature_dim, self.length, self.size, self.action_dim)

    def usable_steps(self, valid: Tensor) -> Tensor:
        """The steps that may be masked and seen: with zero padding all of them."""
        return valid if self.padding == "ignore" else torch.ones_like(valid)

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, losses and the std over masks of each window: ``(B,)`` each."""
        k, batch = masked.shape[:2]
        masked_rows = masked.flatten(0, 1)  # (K * B, L) or (K * B, L, D)
        x, valid = x.repeat(k, 1, 1), valid.repeat(k, 1)
        actions = None if actions is None else actions.repeat(k, 1, 1)
        targets = self.mask.targets(masked_rows)
        prediction = self.network(x, masked_rows, targets, valid, actions)  # (K * B, L, D)
        targets = targets.view(*targets.shape[:2], -1).expand_as(x) & valid.unsqueeze(2)
        if not self.categorical:
            errors = squared_error(prediction, x, targets).view(k, batch)
            losses, std = self.mean_over_masks(errors, masked)
            return losses.detach(), losses, std
        nll, excess = window_surprisal(prediction, x, targets)  # (K * B,) each
        rewards, std = self.mean_over_masks(excess.view(k, batch), masked)
        return rewards, nll.view(k, batch).mean(0), std

    @isolated
    def reconstruct(self, window: Window) -> tuple[Tensor, Tensor]:
        """Predicts the masked part of windows; changes nothing.

        Returns:
            The mask ``(B, L)`` or ``(B, L, D)``, and the features ``(B, L, D)`` that the network
            sees with the masked ones replaced by the prediction.
        """
        _, x, actions, valid = self._read(window)
        masked = self.mask.draw(valid, 1, self._copied_generator())[0]
        prediction = self.network(x, masked, masked, valid, actions)
        where = masked.view(*masked.shape[:2], -1).expand_as(x)
        if self.categorical:
            prediction = prediction.masked_fill(~where, -1e9).softmax(-1)
        return masked, torch.where(where, prediction, x)
