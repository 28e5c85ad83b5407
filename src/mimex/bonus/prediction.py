"""Masked prediction, the frame that MIMEx, RND, ICM and pseudo-counts are points of.

A method says what the input is (``tokens``), which part of it is hidden (``mask``), and how the
hidden part is predicted and compared (``errors``). All the rest is the same for all and is here:
checks, masks averaged, scoring and learning in one pass, random numbers, saving.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.inputs import (
    Encoder,
    check_finite,
    check_fraction,
    read_actions,
    read_features,
)
from mimex.bonus.masks import FeatureMask, MaskDistribution
from mimex.bonus.state import load_optimizer, optimizer_state, require_same
from mimex.nn.running import RunningMeanStd
from mimex.types import Metrics, Window

FEATURE_CLIP = 5.0
"""Normalised features are cut off here, in standard deviations (as RND does, Burda et al. 2018)."""

CHUNK_NUMBERS = 1 << 20
"""Windows are worked through in pieces of about this many features (4 MB), so that what the
network makes of a piece stays in cache: 4-8 times the speed of one piece on a CPU."""

CHUNK_WINDOWS = (128, 512)
"""The fewest and most windows of such a piece, on a CPU."""


class MaskedPrediction(ABC):
    """An intrinsic reward that is the error of predicting what a mask hides.

    Args:
        feature_dim: Numbers a step; taken from the first window when None.
        length: Steps a window.
        mask: What is hidden.
        masks: Masks a window, K; their errors are averaged. All K share one optimizer step.
        lr: Learning rate of Adam.
        action_dim: Numbers an action, or number of discrete actions, where actions are used.
        encoder: Turns raw observations into features; needed for images.
        normalise: Keep running statistics of the features and feed normalised, clipped ones.
        device: Where the networks live.
        seed: Of the initial weights and the masks.
    """

    def __init__(
        self,
        feature_dim: int | None,
        *,
        length: int,
        mask: MaskDistribution,
        masks: int,
        lr: float,
        action_dim: int | None,
        encoder: Encoder | None,
        normalise: bool,
        device: torch.device | str,
        seed: int,
    ) -> None:
        for name, value in (("length", length), ("masks", masks), ("feature_dim", feature_dim)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        if not lr > 0:
            raise ValueError(f"lr={lr} must be positive.")
        mask.require(length, masks)
        self.length, self.masks, self.lr, self.seed = length, masks, lr, seed
        self.mask, self.action_dim, self.encoder = mask, action_dim, encoder
        self.device = torch.device(device)
        self.steps = 0  # optimizer steps taken
        self.feature_dim = 0  # until the first window tells
        self._normalise = normalise
        self._generator = Generator(self.device).manual_seed(seed)
        if feature_dim is not None:
            self._build(feature_dim)

    # What a method is ----------------------------------------------------------------------

    @abstractmethod
    def build(self, feature_dim: int) -> nn.Module:
        """Makes the networks; parameters that do not require a gradient are not trained."""

    @abstractmethod
    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predicts what is hidden.

        Args:
            x: ``(B, L, D)`` features.
            actions: ``(B, L, A)``, or None.
            valid: ``(B, L)``.
            hidden: ``(K, B, L)`` or ``(K, B, L, D)``.

        Returns:
            The mean squared errors ``(K, B)``, and the loss of each window ``(B,)`` beyond their
            mean (zeros for most).
        """

    def counts_as_data(self, valid: Tensor) -> Tensor:
        """The steps ``(B, L)`` that may be hidden and seen: here the valid ones."""
        return valid

    # What all share ------------------------------------------------------------------------

    @property
    def effective_ratio(self) -> float:
        """The share of a full window that is really hidden, after rounding to whole steps."""
        return self.mask.effective_ratio(self.length)

    @torch.no_grad()
    def reward(self, window: Window) -> Tensor:
        """Scores each window, ``(B,)``: what ``learn`` would pay now. Changes nothing."""
        _, x, actions, valid = self._read(window)
        generator = Generator(self.device)
        generator.set_state(self._generator.get_state())
        hidden = self.mask.draw(valid, self.masks, generator)
        scores = [self._score(x, actions, valid, hidden, rows)[0] for rows in self._chunks(len(x))]
        return check_finite(torch.cat(scores), "the reward")

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores all windows and trains on a random fraction of them, in one forward pass."""
        check_fraction(train_fraction)
        raw, x, actions, valid = self._read(window)
        before = self._generator.get_state()
        hidden = self.mask.draw(valid, self.masks, self._generator)
        trained = max(1, round(train_fraction * len(x)))
        train = rest = None  # indices of the windows to train on, and to score only
        if trained < len(x):
            order = torch.randperm(len(x), generator=self._generator, device=self.device)
            train, rest = order[:trained], order[trained:]
        rewards = x.new_empty(len(x))
        loss = spread = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        try:
            for rows in self._chunks(trained):
                chosen = rows if train is None else train[rows]
                rewards[chosen], losses, errors = self._score(x, actions, valid, hidden, chosen)
                total = losses.sum() / trained
                if total.requires_grad:  # not where nothing could be hidden
                    total.backward()  # type: ignore[no-untyped-call]
                loss += float(total.detach())
                if self.masks > 1:
                    spread += float(errors.std(0).sum()) / trained
            with torch.no_grad():
                for rows in self._chunks(len(x) - trained):
                    chosen = rows if rest is None else rest[rows]
                    rewards[chosen] = self._score(x, actions, valid, hidden, chosen)[0]
            check_finite(rewards, "the reward")
        except BaseException:  # nothing was learned: the next call draws the same masks
            self._generator.set_state(before)
            self.optimizer.zero_grad(set_to_none=True)
            raise
        self.optimizer.step()
        if self.statistics is not None:
            self.statistics.update(raw[window.valid.to(self.device)])
        self.steps += 1
        metrics = {
            "bonus/loss": loss,
            "bonus/mean": float(rewards.mean()),
            "bonus/std": float(rewards.std(correction=0)),
            "bonus/trained": float(trained),
        }
        if self.masks > 1:
            metrics["bonus/standard_error"] = spread / self.masks**0.5
        return rewards, metrics

    def _score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor, rows: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards ``(b,)``, losses ``(b,)`` and the errors of each mask ``(K, b)`` of some rows."""
        hidden = hidden[:, rows]
        errors, beyond = self.errors(
            x[rows], None if actions is None else actions[rows], valid[rows], hidden
        )
        # A mask that hides nothing of a short window says nothing about it: it does not count.
        counts = hidden.flatten(2).any(2).sum(0).clamp(min=1)
        means = errors.sum(0) / counts
        return means.detach(), means + beyond, errors.detach()

    def _chunks(self, windows: int) -> list[slice]:
        """Slices that cover so many windows in pieces that suit the device."""
        if self.device.type != "cpu":
            return [slice(0, windows)] if windows else []
        fewest, most = CHUNK_WINDOWS
        size = min(max(CHUNK_NUMBERS // (self.length * self.feature_dim), fewest), most)
        return [slice(start, min(start + size, windows)) for start in range(0, windows, size)]

    def _read(self, window: Window) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Raw features, features as the networks take them, actions and validity of a window."""
        raw = read_features(
            window, self.length, self.feature_dim or None, self.encoder, self.device
        )
        actions = None
        if self.action_dim is not None:
            actions = read_actions(window, self.action_dim, self.device)
        if not self.feature_dim:
            self._build(raw.shape[2])
        x = raw if self.statistics is None else self.statistics.normalise(raw, FEATURE_CLIP)
        return raw, x, actions, self.counts_as_data(window.valid.to(self.device))

    def _build(self, feature_dim: int) -> None:
        """Makes networks, optimizer and statistics, with random numbers of our own seed."""
        self.feature_dim = feature_dim
        if isinstance(self.mask, FeatureMask):
            self.mask = dataclasses.replace(self.mask, feature_dim=feature_dim)
        self.mask.require(self.length, self.masks)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = self.build(feature_dim).to(self.device)
        self._trainable = {k: p for k, p in self.network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.Adam(self._trainable.values(), lr=self.lr, fused=True)
        self.statistics = RunningMeanStd((feature_dim,), self.device) if self._normalise else None

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, statistics, generator and counters."""
        state: dict[str, Any] = {
            "kind": type(self).__name__,
            "feature_dim": self.feature_dim,
            "length": self.length,
            "steps": self.steps,
            "generator": self._generator.get_state(),
        }
        if self.feature_dim:
            state["network"] = {k: v.clone() for k, v in self.network.state_dict().items()}
            state["optimizer"] = optimizer_state(self.optimizer, self._trainable)
            if self.statistics is not None:
                state["statistics"] = self.statistics.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        kind = type(self).__name__
        saved = state.get("kind")
        if saved != kind:
            raise ValueError(f"this is the state of a {saved!r}, not of a {kind!r}.")
        if missing := [name for name in ("generator", "steps", "length") if name not in state]:
            raise ValueError(f"the state has no {', '.join(missing)}: it is damaged.")
        for name in ("length", "feature_dim"):
            ours = getattr(self, name)
            if ours and state[name] and ours != state[name]:
                raise ValueError(
                    f"the state was saved with {name}={state[name]}, this {kind} has {ours}."
                )
        if state["feature_dim"]:
            if not self.feature_dim:
                self._build(state["feature_dim"])
            require_same(self.network.state_dict(), state["network"], f"this {kind}")
            for name, moments in state["optimizer"].items():
                shape = self._trainable[name]
                expected = {"step": moments.get("step"), "exp_avg": shape, "exp_avg_sq": shape}
                require_same(expected, moments, f"the optimizer of {name}")
            self.network.load_state_dict(state["network"])
            load_optimizer(self.optimizer, self._trainable, state["optimizer"])
            if self.statistics is not None:
                self.statistics.load_state_dict(state["statistics"])
        self._generator.set_state(state["generator"])
        self.steps = int(state["steps"])
