"""The bonus for rsl_rl's PPO, added to a rollout where its RND extension adds its own.

Tested with rsl-rl-lib 5.5.1 and tensordict 0.15.3 beside torch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.bonus.inputs import check_fraction
from mimex.data.windows import RolloutWindows, WindowIndex
from mimex.extras import optional_import

with optional_import("mimex.interop.rsl_rl", "rsl"):
    from gymnasium import spaces
    from rsl_rl.utils import resolve_callable

    from mimex.interop.adapter import BonusAdapter, BonusOptions, require_learn_every


def add_bonus(
    train_cfg: Mapping[str, Any], bonus: IntrinsicReward, **options: Any
) -> dict[str, Any]:
    """Adds a bonus to a training configuration of rsl_rl.

    ``OnPolicyRunner(env, add_bonus(train_cfg, MIMEx()), log_dir)``. Checkpoints contain
    the bonus and its scale. Windows end at the observation that the policy acted on, because rsl_rl
    has no final observations.

    Args:
        train_cfg: Configuration of ``OnPolicyRunner``, with PPO or a subclass.
        bonus: The intrinsic reward, on the runner's device.
        options: As of ``RolloutBonus``; ``view`` is an observation group or several, by default
            those of the actor.
    """
    algorithm = train_cfg["algorithm"]
    if algorithm.get("rnd_cfg"):
        raise ValueError("the algorithm has rnd_cfg: set it to None, or leave the bonus out.")
    base = resolve_callable(algorithm["class_name"])
    with_bonus = _with_bonus(base, RolloutBonus(bonus, **options))
    return {**train_cfg, "algorithm": {**algorithm, "class_name": with_bonus}}


class RolloutBonus(BonusAdapter):
    """The bonus of whole rollouts of rsl_rl.

    Args:
        bonus: The intrinsic reward.
        learn_every: Windows per learning step.
        train_fraction: Random fraction of the windows to train on; all are scored.
        options: As of ``BonusAdapter``: ``beta``, ``stride``, ``view``, ``encoder``.
    """

    def __init__(
        self,
        bonus: IntrinsicReward,
        *,
        learn_every: int = 512,
        train_fraction: float = 0.25,
        **options: Unpack[BonusOptions],
    ) -> None:
        if options.setdefault("ends_at", "observation") != "observation":
            raise ValueError(
                f"ends_at={options['ends_at']!r} needs final observations, which rsl_rl does not "
                "have: leave it out, and windows end at the observation that the policy acted on."
            )
        require_learn_every(learn_every)
        check_fraction(train_fraction)
        super().__init__(bonus, **options)
        self.learn_every, self.train_fraction = learn_every, train_fraction

    def prepare(self, observations: Any, env: Any, groups: Sequence[str]) -> None:
        """Sets up the bonus for an environment.

        Args:
            observations: A TensorDict of ``(N, ...)`` by group.
            env: The ``VecEnv``.
            groups: Observation groups that the bonus sees if ``view`` is None.
        """
        self.view = list(groups) if self.view is None else self.view
        parts: dict[str, spaces.Space[Any]] = {
            name: spaces.Box(-np.inf, np.inf, tuple(values.shape[1:]))
            for name, values in observations.items()
        }
        actions = spaces.Box(-np.inf, np.inf, (env.num_actions,))
        self._flatten, self._flatten_actions = self.flatteners(spaces.Dict(parts), actions)
        self.bound = getattr(env, "clip_actions", None)  # in mjlab and Isaac Lab
        self.num_envs = env.num_envs
        self.forget_episodes()

    def forget_episodes(self) -> None:
        """Starts new episodes in all environments."""
        self.windows = RolloutWindows(self.bonus.length, self.num_envs, stride=self.stride)

    def rollout(
        self, observations: Any, actions: Tensor, dones: Tensor, extrinsic: Tensor
    ) -> Tensor:
        """Returns the intrinsic rewards ``(M, N)`` of a rollout, and trains the bonus on it.

        Args:
            observations: A TensorDict of ``(M, N, ...)`` by group: on which the policy acted.
            actions: ``(M, N, A)``.
            dones: ``(M, N)``.
            extrinsic: ``(M, N)`` extrinsic rewards, without values added at truncations.
        """
        grid = extrinsic.shape
        flat = {name: values.flatten(0, 1) for name, values in observations.items()}
        features = self._flatten(flat).clone().view(*grid, -1)
        prev_actions = None
        if self._flatten_actions is not None:
            bound = torch.inf if self.bound is None else self.bound
            clipped = self._flatten_actions(actions.flatten(0, 1).clamp(-bound, bound)).clone()
            prev_actions = clipped.view(*grid, -1)
        index = self.windows.build(features, dones.bool().clone(), actions=prev_actions)
        raw = self._score(index, grid).view(grid)
        return self.combine(extrinsic.clone(), raw).intrinsic

    def _score(self, index: WindowIndex, grid: Sequence[int]) -> Tensor:
        raw = torch.empty(len(index), device=index.bank.device)
        episodic = isinstance(self.bonus, EpisodicReward)
        if isinstance(self.bonus, EpisodicReward):
            for step in torch.arange(len(index), device=raw.device).view(*grid):
                raw[step] = self.bonus.follow(index[step], index.starts[step]).to(raw)
        for start in range(0, len(index), self.learn_every):
            rows = slice(start, start + self.learn_every)
            scores, self.metrics = self.bonus.learn(index[rows], self.train_fraction)
            if not episodic:
                raw[rows] = scores.detach().to(raw)
        return raw


def _with_bonus(base: Any, adapter: RolloutBonus) -> Any:
    """A subclass of rsl_rl's PPO with a bonus."""

    class BonusPPO(base):  # type: ignore[misc]
        bonus = adapter

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if self.is_multi_gpu:
                raise ValueError("a bonus trains in one process: run rsl_rl without WORLD_SIZE.")
            self._extrinsic: list[Tensor] = []  # of the current rollout

        @staticmethod
        def construct_algorithm(obs: Any, env: Any, cfg: dict[str, Any], device: str) -> Any:
            made = base.construct_algorithm(obs, env, cfg, device)
            adapter.prepare(obs, env, cfg["obs_groups"]["actor"])
            return made

        def process_env_step(self, obs: Any, rewards: Tensor, dones: Tensor, extras: Any) -> None:
            self._extrinsic.append(rewards)  # before values are added at truncations
            super().process_env_step(obs, rewards, dones, extras)

        def compute_returns(self, obs: Any) -> None:
            storage, rewards = self.storage, self._extrinsic
            self._extrinsic = []
            with torch.inference_mode(False), torch.enable_grad():  # the bonus learns
                intrinsic = adapter.rollout(
                    storage.observations,
                    storage.actions,
                    storage.dones.squeeze(-1),
                    torch.stack([reward.clone() for reward in rewards]),
                )
            storage.rewards += intrinsic.unsqueeze(-1)
            super().compute_returns(obs)

        def update(self) -> dict[str, float]:
            return {**super().update(), **adapter.report}

        def save(self) -> dict[str, Any]:
            return {**super().save(), "bonus_state_dict": adapter.state_dict()}

        def load(self, loaded_dict: dict[str, Any], load_cfg: Any, strict: bool) -> bool:
            if load_cfg is None or load_cfg.get("bonus"):
                if "bonus_state_dict" not in loaded_dict:
                    raise ValueError(
                        "the checkpoint has no bonus: select what to load, "
                        "load_cfg={'actor': True, 'critic': True, ...}, to start with a new one."
                    )
                adapter.load_state_dict(loaded_dict["bonus_state_dict"])
                adapter.forget_episodes()
            return bool(super().load(loaded_dict, load_cfg, strict))

    return BonusPPO
