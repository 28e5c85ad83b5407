"""MIMEx: the error of filling in a trajectory's masked steps as intrinsic reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor, nn

from mimex.bonus.autoencoder import MaskedSequenceAutoencoder
from mimex.bonus.inputs import in_own_mode
from mimex.bonus.masks import FeatureMask, MaskDistribution, TimeMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.size import COMPACT, AutoencoderSize
from mimex.bonus.state import Shared
from mimex.bonus.surprise import Loss, check_loss, window_surprise
from mimex.types import Window

MaskType = Literal["time", "feature", "tube"]
Padding = Literal["ignore", "zeros"]


class MIMEx(MaskedPrediction):
    """Intrinsic rewards from masked input modeling (Lin & Jabri, 2023).

    The reward of a step is how badly an online-trained masked autoencoder fills in what is hidden
    of the window that ends there.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        length: Steps a window, T.
        mask_ratio: Share of the steps, entries or features that is hidden (see ``effective_ratio``
            for what rounding to whole ones makes of it).
        masks: Masks a window, averaged, K.
        mask_type: What is hidden: whole steps ("time", the paper's default, with a ratio of 0.7),
            entries, that is features of single steps, each drawn independently ("feature", which
            loses fewer runs on a robot's far goals: docs/results.md), or features in all steps of
            the window ("tube").
        mask: Another mask distribution than these (``mimex.masks``).
        size: Widths and depths of the autoencoder; ``PAPER`` is the paper's, ``LARGER`` that
            with its larger decoder.
        lr: Learning rate of Adam; 1e-4 is the paper's. The defaults of both were found by a search
            on games of exploration (benchmarks/plans/variants.toml).
        actions: Show the action that led to each step, even where the step is hidden, so that the
            agent is not paid for its own action noise. Beyond the paper.
        action_dim: Numbers an action, or the number of discrete actions; if given, they are shown.
        padding: Steps before an episode's first are neither seen nor scored ("ignore"), or are
            zeros like any other input ("zeros", as published).
        discrete_obs: Whether observations are discrete (integers, or one-hot codes), which are
            predicted by softmax and neither normalised nor scored by squared error
            (``mimex.bonus.surprise``). When left out, as the wrapped environment's observation
            space says; without one, where windows hold integers.
        loss: How discrete observations are predicted: "likelihood" (softmax, rewarded by the
            likelihood less the entropy), or "squared" error, as all else and as in RND, ICM and
            Disagreement, for comparisons with one loss.
        shared: As of ``Resumable``: ``encoder``, ``normalise``, ``device``, ``seed``.
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
        if padding not in get_args(Padding):
            raise ValueError(f"padding={padding!r} is unknown: use 'ignore' or 'zeros'.")
        if mask_type not in get_args(MaskType):
            raise ValueError(f"mask_type={mask_type!r}: use 'time', 'feature' or 'tube'.")
        check_loss(loss)
        self.loss: Loss = loss
        self.size, self.padding, self.discrete_obs = size or COMPACT, padding, discrete_obs
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

    @property
    def codes(self) -> bool:
        """Whether features are treated as one-hot codes, not as numbers."""
        return super().codes and self.loss == "likelihood"

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
        """The autoencoder's squared error on what is hidden."""
        targets = self.mask.targets(hidden)
        errors = self.autoencoder.errors(x, hidden, valid, actions, targets)
        return errors, errors.new_zeros(len(x))

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, losses and the deviation over masks; of codes by their likelihood."""
        if not self.codes:
            return super().score(x, actions, valid, hidden)
        targets = self.mask.targets(hidden)
        beyond, losses = window_surprise(self.autoencoder, x, hidden, valid, actions, targets)
        rewards, spread = self.over_masks(beyond, hidden)
        return rewards, losses, spread

    @in_own_mode
    def reconstruct(self, window: Window) -> tuple[Tensor, Tensor]:
        """What a mask hides of windows and how it would be filled in; changes nothing.

        Returns:
            The mask ``(B, L)``, or ``(B, L, D)`` where single numbers are hidden, and the
            prediction ``(B, L, D)``: the features themselves where nothing is hidden. Both are of
            the features as the network takes them.
        """
        _, x, actions, valid = self._read(window)
        hidden = self.mask.draw(valid, 1, self._same_random())[0]
        filled = self.autoencoder.reconstruct(x, hidden, valid, actions)
        if self.codes:
            asked = hidden.view(*hidden.shape[:2], -1)  # the code is one of what is hidden
            filled = torch.where(asked, filled.masked_fill(~asked, -1e9).softmax(-1), filled)
        return hidden, filled
