"""The bonus for on-policy algorithms of Stable-Baselines3: by step, or a rollout at once."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from mimex.bonus.base import IntrinsicReward
from mimex.interop.sb3.buffers import BonusBuffer, LeftOutOfPickles
from mimex.interop.stream import BonusStream, StreamOptions


class RolloutBonus(LeftOutOfPickles, BonusStream):
    """The bonus of a ``BonusVecEnv``, which its rollout buffer asks for where it adds the bonus."""

    one_line = 'PPO("MlpPolicy", **with_bonus(env, bonus))'
    replacement = "model.rollout_buffer.bonus = env.at_once()"
    collecting = False  # with ``at_once``: a rollout is under way

    @property
    def paying(self) -> bool:
        return self.training and (self.collecting or not self.at_once)

    def start_rollout(self) -> None:
        """With ``at_once``: steps from now on are of a new rollout; one given up is dropped."""
        self._rollout, self.collecting = [], True

    def end_rollout(self, seen: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """With ``at_once``: the bonus of each step of the rollout ``(M, N)``.

        Args:
            seen: ``(M, N)``: the rewards in the rollout buffer.
        """
        if len(self._rollout) != len(seen):
            raise RuntimeError(
                f"the BonusVecEnv saw {len(self._rollout)} of the {len(seen)} steps of this "
                "rollout. The model needs the environments whose bonus its rollout buffer has: "
                f"{self.one_line}; after an evaluation on them set env.training = True."
            )
        self.collecting = False
        return self.rollout_rewards(seen).intrinsic.numpy()


class BonusVecEnv(VecEnvWrapper):
    """Adds the bonus to the rewards of a Stable-Baselines3 VecEnv, and trains it.

    Each ``info`` has ``reward_extrinsic`` and ``reward_intrinsic`` (paid at once, the latter is not
    known yet), and ``bonus/mean``, ``bonus/reward``, ``bonus/share`` and ``bonus/beta``, averages
    over recent steps; ``BonusLog`` writes these to Stable-Baselines3's logger. A Monitor below
    reports the extrinsic return. Around a VecNormalize it looks at normalized observations and adds
    to normalized rewards. Inside of one, the sum of both rewards is normalized; paid at once, the
    bonus is sized beside the normalized rewards and joins them.

    For evaluations on these environments set ``training = False``, as for a VecNormalize; paid at
    once there is no need to. An EvalCallback wants environments that are wrapped alike:
    ``BonusVecEnv(eval_env, NoBonus())``.

    Args:
        venv: The environments.
        bonus: The intrinsic reward.
        options: As of ``BonusStream``: ``beta``, ``ends_at``, ``learn_every``, ``view``, ... An
            encoder gets observations as ``venv`` gives them (images mostly as ``(N, H, W, C)``:
            Stable-Baselines3 moves the channels in a wrapper around this one).
    """

    def __init__(
        self, venv: VecEnv, bonus: IntrinsicReward, **options: Unpack[StreamOptions]
    ) -> None:
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
        # A VecEnv resets in the same step and gives the final observation apart.
        finals = [infos[n]["terminal_observation"] for n in np.flatnonzero(dones)]
        truncated = [info.get("TimeLimit.truncated", False) for info in infos] & dones
        rewards = self.stream.step(
            self._actions, observations, extrinsic, dones, finals=finals, truncated=truncated
        )
        parts = zip(infos, rewards.extrinsic.tolist(), rewards.intrinsic.tolist(), strict=True)
        for info, outer, inner in parts:
            info.update(self.stream.report, reward_extrinsic=outer)
            if not self.stream.at_once:
                info["reward_intrinsic"] = inner
        return observations, rewards.total.numpy().astype(np.float32), dones, infos

    @property
    def training(self) -> bool:
        """Whether steps are paid for and learned from; False for evaluations."""
        return self.stream.training

    @training.setter
    def training(self, training: bool) -> None:
        self.stream.training = training

    def at_once(self) -> RolloutBonus:
        """What a ``BonusRolloutBuffer`` is given to reward a whole rollout at once.

        This is several times as fast. ``with_bonus`` does it in one line. Steps then return the
        extrinsic reward; the buffer adds the bonus before it computes returns and advantages.
        """
        return self.stream


class BonusRolloutBuffer(BonusBuffer, RolloutBuffer):
    """Stable-Baselines3's rollout buffer, which adds the bonus before it computes returns.

    With Dict observations it makes a ``BonusDictRolloutBuffer``. The bonus is sized beside the
    rewards that the agent trains on: where a VecNormalize is around the ``BonusVecEnv``, beside
    normalized ones.
    """

    takes = RolloutBonus

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bonus.collecting = False  # nothing is, before the first rollout

    @property
    def bonus(self) -> RolloutBonus:
        """The bonus that is added to the rewards; steps are no longer rewarded one by one."""
        return self._bonus

    @bonus.setter
    def bonus(self, bonus: RolloutBonus) -> None:
        bonus.at_once = True
        self._bonus = bonus

    def reset(self) -> None:
        super().reset()
        self.bonus.start_rollout()

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.bonus.require()  # before a rollout is played for nothing
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(
        self, last_values: torch.Tensor, dones: np.ndarray[Any, Any]
    ) -> None:
        self.rewards += self.bonus.end_rollout(self.rewards).astype(self.rewards.dtype)
        super().compute_returns_and_advantage(last_values, dones)


class BonusDictRolloutBuffer(BonusRolloutBuffer, DictRolloutBuffer):
    """``BonusRolloutBuffer`` for Dict observations."""


BonusRolloutBuffer.for_dicts = BonusDictRolloutBuffer
