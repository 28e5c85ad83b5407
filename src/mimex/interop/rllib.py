"""The bonus for RLlib (new API stack), as a connector of the learner pipeline.

Tested with ray 2.60.0 and gymnasium 1.2.2 (which it pins) beside torch 2.13.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.connectors.connector_v2 import ConnectorV2
from torch import Tensor

from mimex.bonus.base import IntrinsicReward, require_no_episode
from mimex.data.checks import require_positive
from mimex.data.windows import RolloutWindows
from mimex.interop.adapter import BonusAdapter, BonusOptions
from mimex.interop.flatten import action_bounds
from mimex.types import Array, Window


def add_bonus(config: Any, bonus: IntrinsicReward, **options: Any) -> Any:
    """Adds a bonus to an RLlib configuration: ``add_bonus(PPOConfig()..., MIMEx())``.

    Args:
        config: An ``AlgorithmConfig`` of the new API stack, otherwise complete.
        bonus: The intrinsic reward; each learner has its own copy.
        options: As of ``BonusConnector``.
    """
    length = bonus.length * options.get("stride", 1)
    for name in ("normalize_actions", "clip_actions"):
        options.setdefault(name, getattr(config, name))
    learners = max(config.num_learners, 1)  # each gets its share of the episodes
    options.setdefault("runners", max(config.num_env_runners // learners, 1))
    options.setdefault("envs", config.num_envs_per_env_runner)
    return config.learners(
        learner_class=_with_saved_bonus(config.learner_class),
        learner_connector=lambda seen, acted: BonusConnector(seen, acted, bonus=bonus, **options),
    ).env_runners(episode_lookback_horizon=length)  # for episodes that rollouts split


def _with_saved_bonus(learner_class: Any) -> Any:
    """A learner class whose checkpoints contain the bonus; RLlib does not save connectors."""

    class Learner(learner_class):  # type: ignore[misc]
        def get_state(
            self, components: Any = None, *, not_components: Any = None, **kwargs: Any
        ) -> dict[str, Any]:
            state: dict[str, Any] = super().get_state(
                components, not_components=not_components, **kwargs
            )
            if self._check_component("bonus", components, not_components):
                state["bonus"] = self._bonus().get_state()
            return state

        def set_state(self, state: dict[str, Any]) -> None:
            super().set_state(state)
            if "bonus" in state:
                self._bonus().set_state(state["bonus"])

        def _bonus(self) -> BonusConnector:
            connectors = self._learner_connector.connectors
            return next(c for c in connectors if isinstance(c, BonusConnector))

    return Learner


def timeline(lengths: list[int], runners: int, envs: int) -> tuple[Any, Any]:
    """The step and the environment of each row of a batch of episode chunks: ``(B,)`` each.

    RLlib returns the chunks of one runner after those of another, each in the order of their ends,
    without their environments: each is assigned to the environment that is free first.

    Args:
        lengths: Steps of each chunk.
        runners: Number of environment runners.
        envs: Parallel environments of each runner.
    """
    free = np.zeros((runners, envs), dtype=np.int64)  # steps taken so far
    ends = np.cumsum(lengths)
    steps, columns = [], []
    for length, end in zip(lengths, ends, strict=True):
        runner = min(int((end - length / 2) / ends[-1] * runners), runners - 1)
        env = int(free[runner].argmin())
        steps.append(free[runner, env] + np.arange(length))
        columns.append(np.full(length, runner * envs + env))
        free[runner, env] += length
    return np.concatenate(steps), np.concatenate(columns)


class BonusConnector(ConnectorV2):
    """Adds the bonus to the rewards of episodes before advantages are computed, and trains it.

    ``add_bonus`` inserts it.

    Args:
        input_observation_space: Not used: episodes have their own.
        input_action_space: Not used.
        bonus: The intrinsic reward.
        batch_size: Windows per learning step.
        normalize_actions: RLlib's setting: environments receive actions that are clipped to
            [-1, 1] and scaled to their bounds.
        clip_actions: RLlib's setting: environments receive actions clipped to their bounds.
        runners: Number of environment runners.
        envs: Parallel environments of each runner.
        options: As of ``BonusAdapter``: ``beta``, ``ends_at``, ``stride``, ``view``, ``encoder``.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        bonus: IntrinsicReward,
        batch_size: int = 512,
        normalize_actions: bool = True,
        clip_actions: bool = False,
        runners: int = 1,
        envs: int = 1,
        **options: Unpack[BonusOptions],
    ) -> None:
        require_no_episode(bonus, "a chunk of an episode of RLlib")
        super().__init__(input_observation_space, input_action_space)
        self.adapter, self.batch_size = BonusAdapter(bonus, **options), batch_size
        self.normalize_actions, self.clip_actions = normalize_actions, clip_actions
        require_positive(runners=runners, envs=envs)
        self.runners, self.envs = runners, envs
        self.bonus = bonus

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Any,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        # PPO's connector before this one repeats the last step of each episode, without reward.
        padded = bool((shared_data or {}).get("_added_loss_mask_for_valid_episode_ts"))
        chunks = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        lengths = [len(chunk) - padded for chunk in chunks]
        window = Window.cat([self._windows(c, n) for c, n in zip(chunks, lengths, strict=True)])
        raw = []
        for start in range(0, len(window), self.batch_size):
            scores, self.adapter.metrics = self.bonus.learn(window[start : start + self.batch_size])
            raw.append(scores.detach().cpu())
        extrinsic = [
            np.asarray(chunk.get_rewards())[:n] for chunk, n in zip(chunks, lengths, strict=True)
        ]
        total = self._total(lengths, np.concatenate(extrinsic).astype(np.float32), torch.cat(raw))
        totals = np.split(total.numpy(), np.cumsum(lengths)[:-1])
        for chunk, rewards in zip(chunks, totals, strict=True):
            chunk.set_rewards(new_data=rewards, at_indices=slice(0, len(rewards)))
        return batch

    def _total(self, lengths: list[int], extrinsic: Array, raw: Tensor) -> Tensor:
        """The sum of both rewards of all steps, scaled in the order of time."""
        where = timeline(lengths, self.runners, self.envs)
        grid = (int(where[0].max()) + 1, self.runners * self.envs)
        real = torch.zeros(grid, dtype=torch.bool)
        outer, inner = torch.zeros(grid), torch.zeros(grid)
        real[where], outer[where], inner[where] = True, torch.as_tensor(extrinsic), raw
        return self.adapter.combine(outer, inner, real).total[where]

    def _windows(self, chunk: Any, steps: int) -> Window:
        """The windows of the steps of an episode chunk."""
        flatten, flatten_actions = self.adapter.flatteners(
            chunk.observation_space, chunk.action_space
        )
        ends_at, stride = self.adapter.ends_at, self.adapter.stride
        back = min(self.bonus.length * stride, chunk.observations.lookback)
        observations = chunk.get_observations(slice(-back, steps + 1), neg_index_as_lookback=True)
        features = flatten(observations).unsqueeze(1)  # (back + steps + 1, 1, D)
        actions: Tensor | None = None
        if flatten_actions is not None:
            taken = chunk.get_actions(slice(-back, steps), neg_index_as_lookback=True)
            actions = self._received(flatten_actions(taken), chunk.action_space).unsqueeze(1)
        windows = RolloutWindows(self.bonus.length, 1, ends_at=ends_at, stride=stride)
        ended = torch.zeros(len(features) - 1, 1, dtype=torch.bool)
        index = windows.build(features[:-1], ended, last=features[-1], actions=actions)
        return index[slice(back, None)]

    def _received(self, actions: Tensor, space: spaces.Space[Any]) -> Tensor:
        """Sampled actions ``(M, A)``, clipped as the environment receives them."""
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            return actions
        if self.normalize_actions:
            return actions.clamp(-1.0, 1.0) if space.is_bounded() else actions
        return actions.clamp(*action_bounds(space)) if self.clip_actions else actions

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """The bonus and its scale."""
        return self.adapter.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a ``get_state``."""
        self.adapter.load_state_dict(state)
