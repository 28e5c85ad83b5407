"""The bonus for RLlib (new API stack), as a piece of the learner's connector pipeline.

Tested with ray 2.60.0 and gymnasium 1.2.2 (which it pins) beside torch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from torch import Tensor

from mimex.bonus.base import IntrinsicReward, require_no_episode
from mimex.data.windows import RolloutWindows
from mimex.interop.weighted import BonusOptions, WeightedBonus
from mimex.types import Metrics, Window


class BonusConnector(ConnectorV2):
    """Adds the bonus to the rewards of episodes before advantages are computed, and trains it.

    ``config.learners(learner_connector=lambda obs, act: BonusConnector(obs, act, bonus=bonus))``,
    with ``config.env_runners(episode_lookback_horizon=bonus.length)`` (times the stride): where a
    rollout cuts an episode, windows reach back over the cut as far as that. With several learners
    each has a bonus of its own. RLlib's checkpoints hold it (``get_state``, ``set_state``).

    Args:
        input_observation_space: As RLlib gives it; what the episodes say is used.
        input_action_space: Likewise.
        bonus: What pays.
        batch_size: Windows of a learning step; each window is learned from once.
        options: As of ``WeightedBonus``: ``beta``, ``ends_at``, ``stride``, ``key``, ``encoder``.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        bonus: IntrinsicReward,
        batch_size: int = 512,
        **options: Unpack[BonusOptions],
    ) -> None:
        require_no_episode(bonus, "a piece of an episode as RLlib hands it over")
        super().__init__(input_observation_space, input_action_space)
        self.weighted, self.batch_size = WeightedBonus(bonus, **options), batch_size
        self.bonus, self.scale = bonus, self.weighted.scale
        self.metrics: Metrics = {}  # of the newest learning step

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
        # PPO puts a piece before this one that repeats each episode's last step, without reward.
        padded = bool((shared_data or {}).get("_added_loss_mask_for_valid_episode_ts"))
        chunks = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        lengths = [len(chunk) - padded for chunk in chunks]
        window = Window.cat([self._windows(c, n) for c, n in zip(chunks, lengths, strict=True)])
        raw = self.bonus.reward(window).detach().cpu()
        extrinsic = [
            np.asarray(chunk.get_rewards())[:n] for chunk, n in zip(chunks, lengths, strict=True)
        ]
        paid = self.weighted.combine(np.concatenate(extrinsic).astype(np.float32), raw)
        totals = np.split(paid.total.numpy(), np.cumsum(lengths)[:-1])
        for chunk, rewards in zip(chunks, totals, strict=True):
            chunk.set_rewards(new_data=rewards, at_indices=slice(0, len(rewards)))
        for start in range(0, len(window), self.batch_size):
            _, self.metrics = self.bonus.learn(window[start : start + self.batch_size])
        return batch

    def _windows(self, chunk: Any, steps: int) -> Window:
        """The window of each of the steps of a piece of an episode."""
        read, read_action = self.weighted.readers(chunk.observation_space, chunk.action_space)
        ends_at, stride = self.weighted.ends_at, self.weighted.stride
        back = min(self.bonus.length * stride, chunk.observations.lookback)
        seen = chunk.get_observations(slice(-back, steps + 1), neg_index_as_lookback=True)
        features = read(seen).unsqueeze(1)  # (back + steps + 1, 1, D)
        led: Tensor | None = None
        if read_action is not None:
            taken = chunk.get_actions(slice(-back, steps), neg_index_as_lookback=True)
            led = read_action(taken).unsqueeze(1)
        walk = RolloutWindows(self.bonus.length, 1, ends_at=ends_at, stride=stride)
        moved = features[:-1]
        index = walk.build(
            moved, torch.zeros(len(moved), 1, dtype=torch.bool), last=features[-1], actions=led
        )
        return index[slice(back, None)]

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """As ``state_dict``, for RLlib's checkpoints (which are pickles)."""
        return self.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """As ``load_state_dict``, from RLlib's checkpoints."""
        self.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and what was paid."""
        return self.weighted.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.weighted.load_state_dict(state)
