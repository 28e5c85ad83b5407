"""MIMEx: the error of filling in a trajectory's masked steps as intrinsic reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.autoencoder import MaskedSequenceAutoencoder
from mimex.bonus.inputs import Encoder
from mimex.bonus.masks import MaskDistribution, TimeMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.size import AutoencoderSize
from mimex.bonus.surprise import window_surprise
from mimex.types import Window


class MIMEx(MaskedPrediction):
    """Intrinsic rewards from masked input modeling (Lin & Jabri, 2023).

    The reward of a step is how badly an online-trained masked autoencoder fills in the hidden
    steps of the window that ends there.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        length: Steps a window, T.
        mask_ratio: Share of the steps that is hidden (see ``effective_ratio`` for what whole
            steps make of it).
        masks: Masks a window, averaged, K.
        mask: Another mask distribution than ``TimeMask(mask_ratio)``.
        size: Widths and depths of the autoencoder; ``LARGER`` is the paper's larger decoder.
        lr: Learning rate of Adam.
        action_dim: If given, the action that led to each step is visible even where the step is
            hidden, so that the agent is not paid for its own action noise. Beyond the paper.
        padding: ``"ignore"``: steps before the episode's first are neither seen nor scored.
            ``"zeros"``: they are zeros like any other input, as published.
        encoder: Turns raw observations into features; needed for images.
        normalise: Feed features normalised by running statistics.
        one_hot: Whether steps are codes of discrete values, which are predicted as such and neither
            normalised nor scored by squared error (``mimex.bonus.surprise``). When left out, the
            first windows tell.
        device: Where the network lives.
        seed: Of the initial weights and the masks.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 5,
        mask_ratio: float = 0.7,
        masks: int = 1,
        *,
        mask: MaskDistribution | None = None,
        size: AutoencoderSize | None = None,
        lr: float = 1e-4,
        action_dim: int | None = None,
        padding: str = "ignore",
        encoder: Encoder | None = None,
        normalise: bool = False,
        one_hot: bool | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        if padding not in ("ignore", "zeros"):
            raise ValueError(f"padding={padding!r} is unknown: use 'ignore' or 'zeros'.")
        self.size, self.padding, self.one_hot = size or AutoencoderSize(), padding, one_hot
        super().__init__(
            feature_dim,
            length=length,
            mask=mask or TimeMask(mask_ratio),
            masks=masks,
            lr=lr,
            action_dim=action_dim,
            encoder=encoder,
            normalise=normalise,
            device=device,
            seed=seed,
        )

    def build(self, feature_dim: int) -> nn.Module:
        """The autoencoder."""
        self.autoencoder = MaskedSequenceAutoencoder(
            feature_dim, self.length, self.size, self.action_dim
        )
        return self.autoencoder

    def load_published(self, state_dict: Mapping[str, Any]) -> None:
        """Loads the weights of a published model and begins to train from there."""
        if not self.feature_dim:
            raise ValueError("feature_dim is not known yet: give it to MIMEx, then load weights.")
        self.autoencoder.load_published(state_dict)
        self._start_optimizer()

    def counts_as_data(self, valid: Tensor) -> Tensor:
        """The steps that may be hidden and seen: with zero padding all of them."""
        return valid if self.padding == "ignore" else torch.ones_like(valid)

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The autoencoder's error on the hidden steps, or its surprise by codes."""
        if self.one_hot:
            targets = self.mask.targets(hidden)
            return window_surprise(self.autoencoder, x, hidden, valid, actions, targets)
        errors = self.autoencoder.errors(x, hidden, valid, actions, self.mask.targets(hidden))
        return errors, errors.new_zeros(len(x))

    def reconstruct(self, window: Window) -> tuple[Tensor, Tensor]:
        """What a mask hides of windows and how it would be filled in; changes nothing.

        Returns:
            The mask ``(B, L)``, or ``(B, L, D)`` where single numbers are hidden, and the
            prediction ``(B, L, D)``: the features themselves where nothing is hidden. Both are of
            the features as the network takes them.
        """
        _, x, actions, valid = self._read(window)
        generator = Generator(self.device)
        generator.set_state(self._generator.get_state())
        hidden = self.mask.draw(valid, 1, generator)[0]
        filled = self.autoencoder.reconstruct(x, hidden, valid, actions)
        if self.one_hot:
            filled = torch.where(hidden.view(*hidden.shape[:2], -1), filled.softmax(-1), filled)
        return hidden, filled
