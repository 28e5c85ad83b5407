"""Masked prediction, the frame that MIMEx, RND, ICM and pseudo-counts are points of.

A method says what the input is (``tokens``), which part of it is hidden (``mask``), and how the
hidden part is predicted and compared (``errors``). All the rest is the same for all and is here:
checks, masks averaged, scoring and learning in one pass, random numbers, saving.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.inputs import (
    Encoder,
    check_finite,
    check_fraction,
    check_widths,
    read_actions,
    read_features,
    tell_codes,
)
from mimex.bonus.masks import FeatureMask, MaskDistribution
from mimex.bonus.pieces import Gradients, Rows, add_gradients, groups, pieces
from mimex.bonus.state import load_optimizer, optimizer_state, require_same
from mimex.nn.parallel import in_order
from mimex.nn.running import RunningMeanStd
from mimex.types import Metrics, Window

FEATURE_CLIP = 5.0
"""Normalised features are cut off here, in standard deviations (as RND does, Burda et al. 2018)."""

ALWAYS_SAVED = ("generator", "steps", "length", "feature_dim")


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

    one_hot: bool | None = False
    """Whether features are codes of discrete values, for methods that tell them apart; None until
    the first window tells."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if "normalize" in kwargs:
            raise TypeError(f"{cls.__name__} has no normalize=: it is spelt normalise=.")
        return super().__new__(cls)

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
        check_widths(length=length, masks=masks, feature_dim=feature_dim, action_dim=action_dim)
        if not 0 < lr < math.inf:
            raise ValueError(f"lr={lr} must be positive and finite.")
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

    def reward(self, window: Window) -> Tensor:
        """Scores each window, ``(B,)``: what ``learn`` would pay now. Changes nothing."""
        _, x, actions, valid = self._read(window)
        generator = Generator(self.device)
        generator.set_state(self._generator.get_state())
        hidden = self.mask.draw(valid, self.masks, generator)

        def score(rows: Rows) -> Tensor:
            with torch.no_grad():
                return self._score(x, actions, valid, hidden, rows)[0]

        rewards = torch.cat(in_order(score, self._pieces(slice(0, len(x)))))
        return check_finite(rewards, "the reward")

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores all windows and trains on a random fraction of them, in one forward pass."""
        check_fraction(train_fraction)
        raw, x, actions, valid = self._read(window)
        before = self._generator.get_state()
        hidden = self.mask.draw(valid, self.masks, self._generator)
        trained = max(1, round(train_fraction * len(x)))
        train: Rows = slice(0, len(x))
        rest: Rows = slice(0, 0)
        if trained < len(x):
            order = torch.randperm(len(x), generator=self._generator, device=self.device)
            train, rest = order[:trained], order[trained:]
        parameters = tuple(self._trainable.values())

        def work(piece: tuple[Rows, bool]) -> tuple[Tensor, Tensor, Tensor, Gradients]:
            rows, trains = piece
            with torch.set_grad_enabled(trains):
                rewards, losses, spread = self._score(x, actions, valid, hidden, rows)
                gradients: Gradients = ()  # of what is only scored, or could not be hidden
                loss = losses.sum() / trained
                if loss.requires_grad:
                    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                return rewards, loss.detach() * trains, spread.sum() / trained * trains, gradients

        rewards = x.new_empty(len(x))
        loss, spread = x.new_zeros(()), x.new_zeros(())
        self.optimizer.zero_grad(set_to_none=True)
        todo = [(rows, True) for rows in self._pieces(train)]
        todo += [(rows, False) for rows in self._pieces(rest)]
        try:
            # A few pieces at a time, so that their gradients need little memory.
            for group in groups(todo):
                for (rows, _), result in zip(group, in_order(work, group), strict=True):
                    rewards[rows] = result[0]
                    loss += result[1]
                    spread += result[2]
                    add_gradients(parameters, result[3])
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
            "bonus/loss": float(loss),
            "bonus/mean": float(rewards.mean()),
            "bonus/std": float(rewards.std(correction=0)),
            "bonus/trained": float(trained),
        }
        if self.masks > 1:
            metrics["bonus/standard_error"] = float(spread) / self.masks**0.5
        return rewards, metrics

    def _score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, losses, and the deviation over masks of some rows: ``(b,)`` each."""
        hidden = hidden[:, rows]
        errors, beyond = self.errors(
            x[rows], None if actions is None else actions[rows], valid[rows], hidden
        )
        # A mask that hides nothing of a short window says nothing about it: it does not count.
        counts = hidden.flatten(2).any(2).sum(0).clamp(min=1)
        means = errors.sum(0) / counts
        spread = errors.detach().std(0) if self.masks > 1 else torch.zeros_like(means)
        return means.detach(), means + beyond, spread

    def _pieces(self, rows: Rows) -> list[Rows]:
        return pieces(rows, self.length * self.feature_dim * self.masks, self.device)

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
        if self.one_hot is not False:
            self.one_hot = tell_codes(raw, window.valid.to(self.device), self.one_hot)
        x = raw
        if self.statistics is not None and not self.one_hot:
            x = self.statistics.normalise(raw, FEATURE_CLIP)
        return raw, x, actions, self.counts_as_data(window.valid.to(self.device))

    def _build(self, feature_dim: int) -> None:
        """Makes networks, optimizer and statistics, with random numbers of our own seed."""
        mask = self.mask
        if isinstance(mask, FeatureMask):
            mask = dataclasses.replace(mask, feature_dim=feature_dim)
        mask.require(self.length, self.masks)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            try:
                network = self.build(feature_dim).to(self.device)
            except (RuntimeError, TypeError, OverflowError) as error:
                raise ValueError(
                    f"the networks of this {type(self).__name__} cannot be made for "
                    f"feature_dim={feature_dim}: {error}"
                ) from error
        self.mask, self.network = mask, network
        self._start_optimizer()
        self.statistics = RunningMeanStd((feature_dim,), self.device) if self._normalise else None
        self.feature_dim = feature_dim

    def _start_optimizer(self) -> None:
        self._trainable = {k: p for k, p in self.network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.Adam(self._trainable.values(), lr=self.lr, fused=True)

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, statistics, generator and counters."""
        state: dict[str, Any] = {
            "kind": type(self).__name__,
            "feature_dim": self.feature_dim,
            "length": self.length,
            "steps": self.steps,
            "one_hot": self.one_hot if self.steps else None,
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
        held, before = dict(vars(self)), self.state_dict()
        try:
            self._load(state)
        except Exception as error:
            vars(self).clear()  # what was made for the state, where there was nothing before
            vars(self).update(held)
            self._load(before)
            if isinstance(error, ValueError):
                raise
            kind = type(self).__name__
            raise ValueError(f"this is no state of a {kind!r}: {error!r}.") from error

    def _load(self, state: Mapping[str, Any]) -> None:
        kind = type(self).__name__
        saved = state.get("kind")
        if saved != kind:
            raise ValueError(f"this is the state of a {saved!r}, not of a {kind!r}.")
        if missing := [name for name in ALWAYS_SAVED if name not in state]:
            raise ValueError(f"the state has no {', '.join(missing)}: it is damaged.")
        for name in ("length", "feature_dim"):
            ours = getattr(self, name)
            if ours and state[name] and ours != state[name]:
                raise ValueError(
                    f"the state was saved with {name}={state[name]}, this {kind} has {ours}."
                )
        one_hot = state.get("one_hot")
        if one_hot not in (None, True, False):
            raise ValueError(f"the state's one_hot is {one_hot!r}; expected true, false or null.")
        if state["feature_dim"]:
            if not self.feature_dim:
                self._build(state["feature_dim"])
            require_same(self.network.state_dict(), state["network"], f"this {kind}")
            for name, moments in state["optimizer"].items():
                shape, step = self._trainable[name], torch.zeros(())
                expected = {"step": step, "exp_avg": shape, "exp_avg_sq": shape}
                require_same(expected, moments, f"the optimizer of {name}")
            if self.statistics is not None:
                if "statistics" not in state:
                    raise ValueError(f"the state has no statistics, but this {kind} normalises.")
                self.statistics.load_state_dict(state["statistics"])
            self.network.load_state_dict(state["network"])
            load_optimizer(self.optimizer, self._trainable, state["optimizer"])
        else:
            self.feature_dim = 0  # it had seen nothing yet: the next window builds the networks
        self._generator.set_state(state["generator"])
        if one_hot is not None:
            self.one_hot = one_hot
        self.steps = int(state["steps"])
