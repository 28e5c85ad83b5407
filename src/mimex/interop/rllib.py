"""The bonus for RLlib (new API stack), as a piece of the learner's connector pipeline.

Tested with ray 2.60.0 and gymnasium 1.2.2 (which it pins) beside torch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from torch import Tensor

from mimex.bonus.base import IntrinsicReward, require_no_episode
from mimex.bonus.inputs import Encoder
from mimex.bonus.scale import BETA, BonusScale
from mimex.data.windows import EndsAt, RolloutWindows
from mimex.interop.batches import chosen, joined
from mimex.interop.reader import Key, SpaceReader, action_reader
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
        beta: Size of the bonus beside the task's reward, or a ``BonusScale``.
        ends_at: The window of a transition ends at ``"next"``, the observation it led to, or at
            ``"observation"``, which it came from.
        stride: Steps between two of a window, whose actions are summed.
        batch_size: Windows of a learning step; each window is learned from once.
        key: Of Dict observations, the entry to look at, or several; all when left out.
        encoder: Turns a batch of observations into features; needed for images.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        bonus: IntrinsicReward,
        beta: float | BonusScale = BETA,
        ends_at: EndsAt = "next",
        stride: int = 1,
        batch_size: int = 512,
        key: Key = None,
        encoder: Encoder | None = None,
    ) -> None:
        require_no_episode(bonus, "a piece of an episode as RLlib hands it over")
        super().__init__(input_observation_space, input_action_space)
        self.bonus, self.batch_size = bonus, batch_size
        self.ends_at, self.stride = ends_at, stride
        self.scale = beta if isinstance(beta, BonusScale) else BonusScale(beta)
        self.metrics: Metrics = {}  # of the newest learning step
        self._key, self._encoder = key, encoder

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
        window = joined([self._windows(c, n) for c, n in zip(chunks, lengths, strict=True)])
        raw = self.bonus.reward(window).detach().cpu()
        extrinsic = [
            np.asarray(chunk.get_rewards())[:n] for chunk, n in zip(chunks, lengths, strict=True)
        ]
        paid = self.scale.combine(np.concatenate(extrinsic).astype(np.float32), raw)
        totals = np.split(paid.total.numpy(), np.cumsum(lengths)[:-1])
        for chunk, rewards in zip(chunks, totals, strict=True):
            chunk.set_rewards(new_data=rewards, at_indices=slice(0, len(rewards)))
        for start in range(0, len(window), self.batch_size):
            _, self.metrics = self.bonus.learn(
                chosen(window, slice(start, start + self.batch_size))
            )
        return batch

    def _windows(self, chunk: Any, steps: int) -> Window:
        """The window of each of the steps of a piece of an episode."""
        read = SpaceReader(chunk.observation_space, key=self._key, encoder=self._encoder)
        read_action = action_reader(self.bonus, chunk.action_space)
        back = min(self.bonus.length * self.stride, chunk.observations.lookback)
        seen = chunk.get_observations(slice(-back, steps + 1), neg_index_as_lookback=True)
        features = read(seen).unsqueeze(1)  # (back + steps + 1, 1, D)
        led: Tensor | None = None
        if read_action is not None:
            taken = chunk.get_actions(slice(-back, steps), neg_index_as_lookback=True)
            led = read_action(taken).unsqueeze(1)
        walk = RolloutWindows(self.bonus.length, 1, ends_at=self.ends_at, stride=self.stride)
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
        """The bonus and its scale."""
        return {"bonus": self.bonus.state_dict(), "scale": self.scale.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.bonus.load_state_dict(state["bonus"])
        self.scale.load_state_dict(state["scale"])
