"""The bonus along the steps of vector environments: what all step-by-step wrappers share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.bonus.inputs import check_fraction, unchanged_if_refused
from mimex.bonus.scale import Rewards
from mimex.data.tracker import WindowTracker
from mimex.interop.reader import action_bounds
from mimex.interop.weighted import BonusOptions, WeightedBonus, require_learn_every
from mimex.types import Window


class StreamOptions(BonusOptions, total=False):
    """What the wrappers take beyond the environment and the bonus; see ``BonusStream``."""

    learn_every: int | None
    train_fraction: float


class BonusStream(WeightedBonus):
    """Pays the bonus for each step of some environments, and trains it on what it paid for.

    Each observation is encoded once.

    Args:
        bonus: The intrinsic reward.
        num_envs: Number of parallel environments.
        observation_space: Of one environment.
        action_space: Of one environment. Actions beyond its bounds are clipped before the bonus
            sees them, as environments do that accept them.
        learn_every: Transitions, over all environments, between two learning steps of the bonus,
            each on the windows since the one before. None: never (for an evaluation).
        train_fraction: Share of those windows that is learned from, drawn at random; all are
            scored. A quarter of 512 are the 128 a step with which contrast is measured, and half
            the time.
        options: As of ``WeightedBonus``: ``beta``, ``ends_at``, ``stride``, ``view``, ``encoder``.
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
        self.read, self.read_action = self.readers(observation_space, action_space)
        self._bounds = action_bounds(action_space) if self.read_action else (None, None)
        self.transitions = 0
        self.training = True  # steps are paid for and learned from
        self.at_once = False  # steps are not paid for one by one, but by rollout_rewards()
        # window, real, reward, truncated, and what an episodic bonus paid, of each step
        self._rollout: list[tuple[Window, Tensor, Tensor, Tensor, Tensor | None]] = []
        self._tracker: WindowTracker | None = None  # made when the first observation tells its size
        self._window: Window | None = None  # ends at the newest observation
        self._pending: list[Window] = []  # not yet learned from

    @property
    def paying(self) -> bool:
        """Whether steps are rewarded and learned from now."""
        return self.training

    @unchanged_if_refused("_tracker")
    def start(self, observations: Any, which: np.ndarray[Any, Any] | None = None) -> None:
        """Takes in the first observations of new episodes, of all environments or of some.

        Args:
            observations: Of all environments.
            which: ``(N,)`` bool: the environments that start; all when left out.
        """
        starts = torch.ones(self.num_envs, dtype=torch.bool)
        if which is not None:
            starts = self._each("which", which).bool()
        tracker, rows = self._follow(observations)
        before = tracker.state_dict()
        after = tracker.push(rows, starts, self._no_actions())
        if not bool(starts.all()):
            merged = {
                name: torch.where(starts.view(-1, *[1] * (new.ndim - 1)), new, before[name])
                for name, new in tracker.state_dict().items()
            }
            tracker.load_state_dict(merged)
            after = tracker.window()
        self._tracker, self._window = tracker, after

    @unchanged_if_refused("_tracker", "scale", "bonus")
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
        """Pays for one step of each environment.

        Args:
            actions: Taken.
            observations: What the environments returned.
            extrinsic: ``(N,)`` rewards.
            ended: ``(N,)`` bool: the step terminated or truncated its episode.
            finals: Where environments reset in the same step, so that ``observations`` has the
                next episode's first: the final observation of each that ended, in order.
            ignored: ``(N,)`` bool: the step only reset the environment (it ended the step
                before), and is no transition; its observation starts an episode.
            truncated: ``(N,)`` bool: a time limit ended the episode. Algorithms may add a value
                to the rewards of these steps before ``rollout_rewards`` sees them.
        """
        if self._window is None:
            raise RuntimeError("step() before reset(): the first observation is not known yet.")
        tracker, rows = self._follow(observations)
        extrinsic = self._each("extrinsic", extrinsic).clone()
        ended = self._each("ended", ended).bool()
        starts = torch.zeros_like(ended)
        if ignored is not None:
            starts = self._each("ignored", ignored).bool()
        cut = torch.zeros_like(ended)
        if truncated is not None:
            cut = self._each("truncated", truncated).bool()
        real = ~starts
        led = None if self.read_action is None else self.read_action(actions).clamp(*self._bounds)
        came_from, first = self._window, tracker.starting
        if finals is not None and bool(ended.any()):
            arrived = rows.clone()
            arrived[ended] = self.read.each(finals)
            went_to = tracker.peek(arrived, led)
            self._window = tracker.push(rows, ended, led)
        else:
            went_to = self._window = tracker.push(rows, starts, led)
        window = went_to if self.ends_at == "next" else came_from
        if not bool(real.all()):
            window = window[real]
        followed = self._follow_episode(window, real, first) if self.paying else None
        if self.at_once and self.paying:
            self._rollout.append((window, real, extrinsic, cut, followed))
        if self.at_once or not self.paying:
            return Rewards(extrinsic, extrinsic, torch.zeros_like(extrinsic))
        raw = torch.zeros(self.num_envs)
        if len(window):
            scored = self.bonus.reward(window) if followed is None else followed
            raw[real] = scored.detach().cpu()
        rewards = Rewards(
            *(part[0] for part in self.combine(extrinsic[None], raw[None], real[None]))
        )
        self.transitions += len(window)
        if len(window) and self.learn_every is not None:
            self._pending.append(window)
            if sum(map(len, self._pending)) >= self.learn_every:
                self._score_and_learn(Window.cat(self._pending))
                self._pending = []
        return rewards

    def _follow_episode(self, window: Window, real: Tensor, first: Tensor) -> Tensor | None:
        """What a bonus that follows episodes pays for the newest steps; None of any other."""
        if not isinstance(self.bonus, EpisodicReward):
            return None
        if len(window) == 0:
            return torch.zeros(0)
        return self.bonus.follow(window, first[real], real.nonzero().flatten()).cpu()

    def _each(self, name: str, values: Any) -> Tensor:
        """One value for each environment ``(N,)``, checked."""
        found = torch.as_tensor(values)
        if found.shape != (self.num_envs,):
            expected = f"expected ({self.num_envs},): one for each environment"
            raise ValueError(f"{name} has shape {tuple(found.shape)}; {expected}.")
        return found

    def rollout_rewards(self, seen: Any = None) -> Rewards:
        """With ``at_once``: the rewards of all steps since it was last called, ``(M, N)``.

        Args:
            seen: ``(M, N)``: the rewards as the agent sees them, where those differ (normalized,
                say); the bonus is sized beside them. Values that were added to them at time limits
                are left out.

        One pass over many windows both scores and learns, which takes a fraction of the time of
        steps one by one. Each piece of ``learn_every`` windows is scored before it is learned.
        """
        windows, reals, extrinsics, truncated, followed = zip(*self._rollout, strict=True)
        self._rollout = []
        window, real = Window.cat(windows), torch.stack(reals)
        raw = torch.zeros(real.shape)
        piece = self.learn_every or 512
        raw[real] = torch.cat(
            [
                self._score_and_learn(window[start : start + piece])
                for start in range(0, len(window), piece)
            ]
        )
        if followed[0] is not None:
            raw[real] = torch.cat(followed)
        extrinsic = torch.stack(extrinsics)
        if seen is not None:
            extrinsic = _without_values(torch.as_tensor(seen), extrinsic, torch.stack(truncated))
        self.transitions += len(window)
        return self.combine(extrinsic, raw, real)

    def _score_and_learn(self, window: Window) -> Tensor:
        if self.learn_every is None:
            return self.bonus.reward(window).detach().cpu()
        rewards, self.metrics = self.bonus.learn(window, self.train_fraction)
        return rewards.detach().cpu()

    def _follow(self, observations: Any) -> tuple[WindowTracker, Tensor]:
        """The tracker, a new one before the first, and the rows ``(N, D)`` of observations."""
        rows = self.read(observations)
        return self._tracker or self._new_tracker(rows.shape[1]), rows

    def _new_tracker(self, feature_dim: int) -> WindowTracker:
        actions = self._no_actions()
        action_dim = None if actions is None else actions.shape[1]
        length, stride = self.bonus.length, self.stride
        return WindowTracker(self.num_envs, length, feature_dim, action_dim, stride=stride)

    def _no_actions(self) -> Tensor | None:
        if self.read_action is None:
            return None
        return torch.zeros(self.num_envs, int(self.bonus.action_dim))  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale, the windows under way and those not yet learned from."""
        state = super().state_dict() | {"transitions": self.transitions}
        if self._tracker is not None:
            state["tracker"] = self._tracker.state_dict()
        if self._pending:
            state["pending"] = vars(Window.cat(self._pending))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
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
    """Rewards as the agent sees them ``(M, N)``, but for the values added to truncated steps.

    Those steps get the task's ``own`` reward times the factor by which the agent sees the rewards
    of the other environments at that step, or else of the step before.
    """
    sizes = [rewards.double().abs().masked_fill(truncated, 0.0).sum(1) for rewards in (seen, own)]
    factors = torch.where(sizes[1] > 0, sizes[0] / sizes[1], torch.nan).tolist()
    factor = float(sizes[0].sum() / sizes[1].sum()) if float(sizes[1].sum()) > 0 else 1.0
    rewards = seen.clone()
    for t in range(len(seen)):
        factor = factor if math.isnan(factors[t]) else factors[t]
        rewards[t, truncated[t]] = (factor * own[t, truncated[t]]).to(seen.dtype)
    return rewards
