"""The bonus step by step, for environments that are wrapped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.bonus.inputs import check_fraction
from mimex.bonus.scale import Rewards
from mimex.data.tracker import WindowTracker
from mimex.interop.adapter import BonusAdapter, BonusOptions, require_learn_every
from mimex.interop.flatten import action_bounds, stack
from mimex.types import Window


class StreamOptions(BonusOptions, total=False):
    """Options of the environment wrappers; see ``BonusStream``."""

    learn_every: int | None
    train_fraction: float


class _Step(NamedTuple):
    """One step of a rollout that is rewarded later."""

    window: Window  # of the real steps
    real: Tensor  # (N,) bool: not only a reset
    extrinsic: Tensor  # (N,)
    truncated: Tensor  # (N,) bool
    followed: Tensor | None  # scores of an episodic bonus


class BonusStream(BonusAdapter):
    """Computes the bonus of each step of parallel environments, and trains it.

    Attributes:
        transitions: Transitions so far, over all environments.
        training: Whether steps are rewarded and learned from; False for evaluations.
        per_rollout: Whether steps are rewarded by ``rollout_rewards`` instead of one by one.

    Args:
        bonus: The intrinsic reward.
        num_envs: Number of parallel environments.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment. Actions are clipped to its bounds.
        learn_every: Transitions, over all environments, between two learning steps of the bonus;
            None for no learning (evaluation).
        train_fraction: Random fraction of the transitions to train on; all are scored.
        options: As of ``BonusAdapter``: ``beta``, ``ends_at``, ``stride``, ``view``, ``encoder``.
    """

    def __init__(
        self,
        bonus: IntrinsicReward,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        learn_every: int | None = 512,
        train_fraction: float = 0.25,
        **options: Unpack[BonusOptions],
    ) -> None:
        super().__init__(bonus, **options)
        if learn_every is not None:
            require_learn_every(learn_every, ", or None for never")
        check_fraction(train_fraction)
        self.num_envs, self.learn_every, self.train_fraction = num_envs, learn_every, train_fraction
        self._flatten, self._flatten_actions = self.flatteners(observation_space, action_space)
        # Lower and upper bounds of the flattened actions; None if the bonus does not use actions.
        self._bounds = action_bounds(action_space) if self._flatten_actions else None
        self.transitions = 0
        self.training = True
        self.per_rollout = False
        self._rollout: list[_Step] = []
        self._tracker: WindowTracker | None = None  # created with the first observation
        self._window: Window | None = None  # ends at the newest observation
        self._pending: list[Window] = []  # not yet learned from

    @property
    def active(self) -> bool:
        """Whether steps are rewarded and learned from now."""
        return self.training

    def start(self, observations: Any, which: np.ndarray[Any, Any] | None = None) -> None:
        """Adds the first observations of new episodes.

        Args:
            observations: Observations of all environments.
            which: ``(N,)`` bool: the environments that start; all if None.
        """
        starts = self._flags("which", np.ones(self.num_envs, bool) if which is None else which)
        features = self._flatten(observations)
        tracker = self._tracker or self._new_tracker(features.shape[1])
        no_actions = None
        if self._bounds is not None:
            no_actions = torch.zeros(self.num_envs, len(self._bounds[0]))
        self._window = tracker.push(features, starts, no_actions, which=starts)
        self._tracker = tracker

    def step(
        self,
        actions: Any,
        observations: Any,
        extrinsic: Any,
        ended: Any,
        *,
        finals: Sequence[Any] | None = None,
        ignored: Any = None,
        truncated: Any = None,
    ) -> Rewards:
        """Returns the rewards ``(N,)`` of one step of each environment.

        Args:
            actions: The actions.
            observations: The observations that the environments returned.
            extrinsic: ``(N,)`` extrinsic rewards.
            ended: ``(N,)`` bool: the step terminated or truncated its episode.
            finals: With SAME_STEP autoreset: the final observation of each episode that ended, in
                the order of environments.
            ignored: ``(N,)`` bool: with NEXT_STEP autoreset, steps that only reset.
            truncated: ``(N,)`` bool: the step truncated its episode. Algorithms may add a value
                to the rewards of these steps, which ``rollout_rewards`` leaves out.
        """
        if self._window is None or self._tracker is None:
            raise RuntimeError("step() before reset(): the first observation is not known yet.")
        tracker, features = self._tracker, self._flatten(observations)
        extrinsic = self._per_env("extrinsic", extrinsic).clone()
        ended, starts = self._flags("ended", ended), self._flags("ignored", ignored)
        truncated, real = self._flags("truncated", truncated), ~starts
        for name, values in (("extrinsic", extrinsic), ("observations", features)):
            if not bool(values.isfinite().all()):
                bad = float(values[~values.isfinite()][0])
                raise ValueError(f"{name} has {bad}; expected finite values. Nothing was changed.")
        action = None
        if self._flatten_actions is not None and self._bounds is not None:
            action = self._flatten_actions(actions).clamp(*self._bounds)
        window, first = self._window, tracker.starting
        if finals is not None and bool(ended.any()):
            final = features.clone()
            final[ended] = self._flatten(stack(finals))
            next_window = tracker.peek(final, action)
            self._window = tracker.push(features, ended, action)
        else:
            next_window = self._window = tracker.push(features, starts, action)
        if self.ends_at == "next":
            window = next_window
        if not bool(real.all()):
            window = window[real]
        no_bonus = Rewards(extrinsic, extrinsic, torch.zeros_like(extrinsic))
        if not self.active:
            return no_bonus
        followed = None
        if isinstance(self.bonus, EpisodicReward):
            envs = real.nonzero().flatten()
            followed = (
                self.bonus.follow(window, first[real], envs).cpu() if len(envs) else torch.zeros(0)
            )
        if self.per_rollout:
            self._rollout.append(_Step(window, real, extrinsic, truncated, followed))
            return no_bonus
        raw = torch.zeros(self.num_envs)
        if len(window):
            scores = self.bonus.reward(window) if followed is None else followed
            raw[real] = scores.detach().cpu()
        rewards = self.combine(extrinsic[None], raw[None], real[None])
        self.transitions += len(window)
        if len(window) and self.learn_every is not None:
            self._pending.append(window)
            if sum(map(len, self._pending)) >= self.learn_every:
                self._score_and_learn(Window.cat(self._pending))
                self._pending = []
        return Rewards(*(part[0] for part in rewards))

    def _flags(self, name: str, values: Any) -> Tensor:
        """Checked flags ``(N,)``; all False for None."""
        if values is None:
            return torch.zeros(self.num_envs, dtype=torch.bool)
        return self._per_env(name, values).bool()

    def _per_env(self, name: str, values: Any) -> Tensor:
        """Checked values ``(N,)``, one per environment."""
        found = torch.as_tensor(values)
        if found.shape != (self.num_envs,):
            expected = f"expected ({self.num_envs},): one for each environment"
            raise ValueError(f"{name} has shape {tuple(found.shape)}; {expected}.")
        return found

    def rollout_rewards(self, trained_on: Any = None) -> Rewards:
        """With ``per_rollout``: the rewards ``(M, N)`` of all steps since the last call.

        Scores and trains in one forward pass, several times as fast as step by step. Each chunk of
        ``learn_every`` windows is scored before it is learned from.

        Args:
            trained_on: ``(M, N)``: the rewards that the agent trains on, if they are not the
                environments' (normalized, say); the bonus is scaled relative to them. Values that
                were added to them at truncations are left out.
        """
        windows, reals, extrinsics, truncated, followed = zip(*self._rollout, strict=True)
        self._rollout = []
        window, real = Window.cat(windows), torch.stack(reals)
        raw = torch.zeros(real.shape)
        size = self.learn_every or 512
        starts = range(0, len(window), size)
        raw[real] = torch.cat([self._score_and_learn(window[t : t + size]) for t in starts])
        if followed[0] is not None:
            raw[real] = torch.cat(followed)
        extrinsic = torch.stack(extrinsics)
        if trained_on is not None:
            seen = torch.as_tensor(trained_on)
            extrinsic = _without_values(seen, extrinsic, torch.stack(truncated))
        self.transitions += len(window)
        return self.combine(extrinsic, raw, real)

    def _score_and_learn(self, window: Window) -> Tensor:
        if self.learn_every is None:
            return self.bonus.reward(window).detach().cpu()
        rewards, self.metrics = self.bonus.learn(window, self.train_fraction)
        return rewards.detach().cpu()

    def _new_tracker(self, feature_dim: int) -> WindowTracker:
        action_dim = None if self._bounds is None else len(self._bounds[0])
        length, stride = self.bonus.length, self.stride
        return WindowTracker(self.num_envs, length, feature_dim, action_dim, stride=stride)

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale, the newest windows and those not yet learned from."""
        state = super().state_dict() | {"transitions": self.transitions}
        if self._tracker is not None:
            state["tracker"] = self._tracker.state_dict()
        if self._pending:
            state["pending"] = vars(Window.cat(self._pending))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        tracker, pending = None, []
        try:
            transitions = int(state["transitions"])
            if (history := state.get("tracker")) is not None:
                tracker = self._new_tracker(history["features"].shape[2])
                tracker.load_state_dict(history)
            if "pending" in state:
                pending = [Window(**state["pending"])]
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of a BonusStream: {error!r}.") from error
        super().load_state_dict(state)
        self._tracker, self._window = tracker, None if tracker is None else tracker.window()
        self._rollout, self._pending, self.transitions = [], pending, transitions


def _without_values(seen: Tensor, own: Tensor, truncated: Tensor) -> Tensor:
    """Rewards that the agent trains on ``(M, N)``, without the values added at truncations.

    A truncated step gets the environment's ``own`` reward times the ratio of both rewards in the
    other environments at that step, or else at the step before.
    """
    sizes = [rewards.double().abs().masked_fill(truncated, 0.0).sum(1) for rewards in (seen, own)]
    factors = torch.where(sizes[1] > 0, sizes[0] / sizes[1], torch.nan).tolist()
    factor = float(sizes[0].sum() / sizes[1].sum()) if float(sizes[1].sum()) > 0 else 1.0
    rewards = seen.clone()
    for t in range(len(seen)):
        factor = factor if math.isnan(factors[t]) else factors[t]
        rewards[t, truncated[t]] = (factor * own[t, truncated[t]]).to(seen.dtype)
    return rewards
