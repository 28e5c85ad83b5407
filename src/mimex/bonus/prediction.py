"""Masked prediction, the frame that MIMEx, RND, ICM and pseudo-counts are points of.

A method says what the input is (``tokens``), which part of it is hidden (``mask``), and how the
hidden part is predicted and compared (``errors``). All the rest is the same for all and is here:
checks, masks averaged, scoring and learning in one pass, random numbers, saving.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from mimex.bonus.inputs import (
    check_codes,
    check_finite,
    check_fraction,
    find_action_dim,
    in_own_mode,
    outside_inference,
    read_actions,
    read_features,
    unchanged_if_refused,
)
from mimex.bonus.state import Resumable
from mimex.nn import processes
from mimex.nn.parallel import in_order, pieces
from mimex.nn.running import RunningMeanStd
from mimex.types import Metrics, Window

FEATURE_CLIP = 5.0
"""Normalised features are cut off here, in standard deviations (as RND does, Burda et al. 2018)."""

PIECE_NUMBERS = 1 << 20
"""Windows are worked through in pieces of about this many features (4 MB), so that what the
network makes of a piece stays in cache and no fresh memory has to be cleared for it."""

PIECE_WINDOWS = (128, 1024)
"""The fewest and most windows of such a piece, on a CPU."""

PIECES_AT_ONCE = 8
"""Pieces whose gradients may wait to be added up."""

Rows = slice | Tensor


class MaskedPrediction(Resumable):
    """An intrinsic reward that is the error of predicting what a mask hides.

    The arguments are those of ``Resumable``.
    """

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predicts what is hidden (or a method has a ``score`` of its own).

        Args:
            x: ``(B, L, D)`` features.
            actions: ``(B, L, A)``, or None.
            valid: ``(B, L)``.
            hidden: ``(K, B, L)`` or ``(K, B, L, D)``.

        Returns:
            The mean squared errors ``(K, B)``, and the loss of each window ``(B,)`` beyond their
            mean (zeros for most).
        """
        raise NotImplementedError(f"{type(self).__name__} has neither errors nor score.")

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, losses, and the deviation over masks of windows: ``(B,)`` each."""
        errors, beyond = self.errors(x, actions, valid, hidden)
        means, spread = self.over_masks(errors, hidden)
        return means.detach(), means + beyond, spread

    def over_masks(self, errors: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over masks of errors ``(K, B)``: ``(B,)`` each."""
        # A mask that hides nothing of a short window says nothing about it: it does not count.
        counts = hidden.flatten(2).any(2).sum(0).clamp(min=1)
        means = errors.sum(0) / counts
        return means, errors.detach().std(0) if self.masks > 1 else torch.zeros_like(means)

    def counts_as_data(self, valid: Tensor) -> Tensor:
        """The steps ``(B, L)`` that may be hidden and seen: here the valid ones."""
        return valid

    @in_own_mode
    def inputs(self, window: Window) -> Tensor:
        """The features ``(B, L, D)`` of windows as the networks take them: encoded, normalised."""
        return self._read(window)[1]

    @property
    def effective_ratio(self) -> float:
        """The share of a full window that is really hidden, after rounding to whole steps."""
        return self.mask.effective_ratio(self.length)

    @in_own_mode
    @unchanged_if_refused()
    def reward(self, window: Window) -> Tensor:
        """Scores each window, ``(B,)``: what ``learn`` would pay now. Changes nothing."""
        _, x, actions, valid = self._read(window)
        hidden = self.mask.draw(valid, self.masks, self._same_random())

        def score(rows: Rows) -> Tensor:
            with torch.no_grad():
                return self.score(*_rows(rows, x, actions, valid, hidden))[0]

        rewards = torch.cat(in_order(score, self._pieces(range(len(x)))))
        return check_finite(rewards, "the reward")

    @in_own_mode
    @unchanged_if_refused()
    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores all windows and trains on a random fraction of them, in one forward pass.

        Where there are several processes, each gives as many windows, and all learn from all.
        """
        check_fraction(train_fraction)
        raw, x, actions, valid = self._read(window)
        before = self.generator.get_state()
        hidden = self.mask.draw(valid, self.masks, self.generator)
        trained = max(1, round(train_fraction * len(x)))
        train: Tensor | range = range(len(x))
        rest: Tensor | range = range(0)
        if trained < len(x):
            order = torch.randperm(len(x), generator=self.generator, device=self.device)
            train, rest = order[:trained], order[trained:]
        parameters = tuple(self.trainable.values())

        def work(
            piece: tuple[Rows, bool],
        ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor | None, ...]]:
            rows, trains = piece
            with torch.set_grad_enabled(trains):
                rewards, losses, spread = self.score(*_rows(rows, x, actions, valid, hidden))
                gradients: tuple[
                    Tensor | None, ...
                ] = ()  # of what is only scored, or could not be hidden
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
            for group in pieces(todo, PIECES_AT_ONCE):
                for (rows, _), result in zip(group, in_order(work, group), strict=True):
                    rewards[rows] = result[0]
                    loss += result[1]
                    spread += result[2]
                    _add_gradients(parameters, result[3])
            check_finite(rewards, "the reward")
        except BaseException:  # nothing was learned: the next call draws the same masks
            self.generator.set_state(before)
            self.optimizer.zero_grad(set_to_none=True)
            raise
        loss, spread = processes.average_gradients(parameters, torch.stack([loss, spread]))
        self.optimizer.step()
        if self.statistics is not None:
            self.statistics.update_together(raw[window.valid.to(self.device)])
        self.steps += 1
        paid = processes.all_gather(rewards)
        metrics = {
            "bonus/loss": float(loss),
            "bonus/mean": float(paid.mean()),
            "bonus/std": float(paid.std(correction=0)),
            "bonus/trained": float(trained * processes.size()),
        }
        if self.masks > 1:
            metrics["bonus/standard_error"] = float(spread) / self.masks**0.5
        return rewards, metrics

    def _pieces(self, rows: Tensor | range) -> list[Rows]:
        """Rows in pieces that suit the device; the same ones on any number of threads."""
        count = 1
        if self.device.type == "cpu":  # only there small pieces pay
            fewest, most = PIECE_WINDOWS
            numbers = self.length * self.feature_dim * self.masks
            count = -(-len(rows) // min(max(PIECE_NUMBERS // numbers, fewest), most))
            if len(rows) > 2 * fewest:
                count += count % 2  # two threads then end together
        count = max(count, 1)
        length = max(-(-len(rows) // count), 1)
        if isinstance(rows, range):
            return [slice(piece.start, piece.stop) for piece in pieces(rows, length)]
        return list(pieces(rows, length))

    def _read(self, window: Window) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Raw features, features as the networks take them, actions and validity of a window."""
        window = outside_inference(window)
        raw = read_features(
            window, self.length, self.feature_dim or None, self.encoder, self.device
        )
        actions = None
        if self.uses_actions:
            self.action_dim = self.action_dim or find_action_dim(window, type(self).__name__)
            actions = read_actions(window, self.action_dim, self.device)
        if not self.feature_dim:
            self.start(raw.shape[2])
        if self.discrete_obs is None:  # nobody said so: integers are
            self.discrete_obs = window.features.ndim == 2
        if self.codes:
            check_codes(raw, window.valid.to(self.device))
        x, valid = raw, window.valid.to(self.device)
        if self.statistics is not None and not self.codes:
            statistics = self.statistics
            if statistics.count == 0:  # nothing was learned yet: the batch is its own measure
                statistics = RunningMeanStd(statistics.shape, self.device)
                statistics.update_together(raw[valid])
            x = statistics.normalise(raw, FEATURE_CLIP)
        return raw, x, actions, self.counts_as_data(valid)

    def _same_random(self) -> Generator:
        """A copy of our generator: what it draws, ours will draw again."""
        generator = Generator(self.device)
        generator.set_state(self.generator.get_state())
        return generator


def _rows(rows: Rows, *arrays: Tensor | None) -> list[Any]:
    """Some rows of arrays ``(B, ...)``, and of masks, the last of them, ``(K, B, ...)``."""
    *inputs, hidden = arrays
    assert hidden is not None
    return [*(None if array is None else array[rows] for array in inputs), hidden[:, rows]]


def _add_gradients(parameters: tuple[Tensor, ...], gradients: tuple[Tensor | None, ...]) -> None:
    """Adds a piece's gradients to those before it; none where it had nothing to learn."""
    for parameter, gradient in zip(parameters, gradients, strict=bool(gradients)):
        if gradient is not None and parameter.grad is not None:
            parameter.grad += gradient
        elif gradient is not None:
            parameter.grad = gradient
