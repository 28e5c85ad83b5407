"""The bonus for on-policy algorithms of Stable-Baselines3, per step or per rollout."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from mimex.bonus.base import IntrinsicReward
from mimex.interop.sb3.buffers import BonusBuffer, NotPickled
from mimex.interop.stream import BonusStream, StreamOptions


class RolloutBonus(NotPickled, BonusStream):
    """The bonus of a ``BonusVecEnv`` and of its rollout buffer."""

    one_line = 'PPO("MlpPolicy", **with_bonus(env, bonus))'
    replacement = "model.rollout_buffer.bonus = env.rollout_bonus()"
    collecting = False  # with ``per_rollout``: a rollout is being collected

    @property
    def active(self) -> bool:
        return self.training and (self.collecting or not self.per_rollout)

    def start_rollout(self) -> None:
        """With ``per_rollout``: starts a new rollout; an incomplete one is discarded."""
        self._rollout, self.collecting = [], True

    def end_rollout(self, rewards: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """With ``per_rollout``: the intrinsic rewards ``(M, N)`` of the rollout.

        Args:
            rewards: ``(M, N)`` rewards in the rollout buffer.
        """
        if len(self._rollout) != len(rewards):
            raise RuntimeError(
                f"the BonusVecEnv saw {len(self._rollout)} of the {len(rewards)} steps of this "
                "rollout. The model needs the environments whose bonus its rollout buffer has: "
                f"{self.one_line}; after an evaluation on them set env.training = True."
            )
        self.collecting = False
        return self.rollout_rewards(rewards).intrinsic.numpy()


class BonusVecEnv(VecEnvWrapper):
    """Adds the bonus to the rewards of a Stable-Baselines3 VecEnv, and trains it.

    Each ``info`` has ``reward_extrinsic``, ``reward_intrinsic`` (not if rewarded per rollout), and
    ``bonus/mean``, ``bonus/reward``, ``bonus/share`` and ``bonus/beta``, averages over recent
    steps; ``BonusLog`` writes these to Stable-Baselines3's logger. A Monitor inside of this wrapper
    reports the extrinsic return. Around a VecNormalize, the bonus sees normalized observations and
    is added to normalized rewards. Inside of one, the sum of both rewards is normalized; per
    rollout, the bonus is added to normalized rewards.

    For evaluations on these environments set ``training = False``, as for a VecNormalize; not
    needed if rewarded per rollout. An EvalCallback requires environments with the same wrappers:
    ``BonusVecEnv(eval_env, NoBonus())``.

    Args:
        venv: The environments.
        bonus: The intrinsic reward.
        options: As of ``BonusStream``: ``beta``, ``ends_at``, ``learn_every``, ``view``, ... An
            encoder gets observations as ``venv`` returns them (images mostly as ``(N, H, W, C)``:
            Stable-Baselines3 transposes them in a wrapper around this one).
    """

    def __init__(
        self, venv: VecEnv, bonus: IntrinsicReward, **options: Unpack[StreamOptions]
    ) -> None:
        if "normalize" in options:
            raise TypeError(
                "normalize is no option of BonusVecEnv. To normalize what the bonus sees, use "
                "MIMEx(normalize=True); to scale the bonus or not, beta=BonusScale(normalize=...)."
            )
        super().__init__(venv)
        self.stream = RolloutBonus(
            bonus, venv.num_envs, venv.observation_space, venv.action_space, **options
        )
        self._actions: Any = None

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        self.stream.start(observations)
        return observations

    def step_async(self, actions: np.ndarray[Any, Any]) -> None:
        self._actions = np.array(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        observations, extrinsic, dones, infos = self.venv.step_wait()
        # A VecEnv resets in the same step; the final observation is in info.
        finals = [infos[n]["terminal_observation"] for n in np.flatnonzero(dones)]
        truncated = [info.get("TimeLimit.truncated", False) for info in infos] & dones
        rewards = self.stream.step(
            self._actions, observations, extrinsic, dones, finals=finals, truncated=truncated
        )
        parts = zip(infos, rewards.extrinsic.tolist(), rewards.intrinsic.tolist(), strict=True)
        for info, outer, inner in parts:
            info.update(self.stream.report, reward_extrinsic=outer)
            if not self.stream.per_rollout:
                info["reward_intrinsic"] = inner
        return observations, rewards.total.numpy().astype(np.float32), dones, infos

    @property
    def training(self) -> bool:
        """Whether steps are rewarded and learned from; False for evaluations."""
        return self.stream.training

    @training.setter
    def training(self, training: bool) -> None:
        self.stream.training = training

    def rollout_bonus(self) -> RolloutBonus:
        """The bonus for a ``BonusRolloutBuffer``, which rewards whole rollouts.

        This is several times as fast as step by step. Steps then return the extrinsic reward; the
        buffer adds the bonus before it computes returns and advantages. See ``with_bonus``.
        """
        return self.stream


class BonusRolloutBuffer(BonusBuffer, RolloutBuffer):
    """Stable-Baselines3's rollout buffer, which adds the bonus before it computes returns.

    With Dict observations it creates a ``BonusDictRolloutBuffer``. The bonus is scaled relative to
    the rewards that the agent trains on, which a VecNormalize may have normalized.
    """

    takes = RolloutBonus

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bonus.collecting = False  # before the first rollout

    @property
    def bonus(self) -> RolloutBonus:
        """The bonus that is added to rollouts instead of single steps."""
        return self._bonus

    @bonus.setter
    def bonus(self, bonus: RolloutBonus) -> None:
        bonus.per_rollout = True
        self._bonus = bonus

    def reset(self) -> None:
        super().reset()
        self.bonus.start_rollout()

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.bonus.require_bonus()  # raise before a rollout is collected
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(
        self, last_values: torch.Tensor, dones: np.ndarray[Any, Any]
    ) -> None:
        self.rewards += self.bonus.end_rollout(self.rewards).astype(self.rewards.dtype)
        super().compute_returns_and_advantage(last_values, dones)


class BonusDictRolloutBuffer(BonusRolloutBuffer, DictRolloutBuffer):
    """``BonusRolloutBuffer`` for Dict observations."""


BonusRolloutBuffer.for_dicts = BonusDictRolloutBuffer
