"""The wrappers of this package as set-ups for the doctor, who examines them when asked of none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.mimex import MIMEx
from mimex.bonus.scale import BonusScale
from mimex.data.tracker import WindowTracker
from mimex.doctor.diagnose import Setup
from mimex.doctor.probe import MakeEnv
from mimex.interop.vector import wrap, wrap_vector
from mimex.interop.weighted import WeightedBonus


def _pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1")


def single(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``mimex.wrap`` around one environment."""
    return wrap(make_env(), bonus or MIMEx(normalize=True))


def own_loop(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """A loop of one's own, as in the README: a tracker, a bonus and a scale."""
    envs = SyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    bonus, scale = bonus or MIMEx(normalize=True), BonusScale()
    width = spaces.flatdim(envs.single_observation_space)
    tracker = WindowTracker(2, bonus.length, width)
    envs.action_space.seed(0)
    observation, _ = envs.reset(seed=0)
    starts = np.ones(2, bool)
    rows = []
    for _ in range(120):
        window = tracker.push(observation, starts)
        novelty, _ = bonus.learn(window)
        before = observation
        observation, reward, terminated, truncated, _ = envs.step(envs.action_space.sample())
        starts = terminated | truncated
        rows.append((before, scale.combine(reward, novelty)))
    found = {
        name: np.concatenate([getattr(paid, name).numpy() for _, paid in rows])
        for name in ("total", "extrinsic", "intrinsic")
    }
    return found | {
        "targets": found["total"],
        "rewards": found["total"],
        "observations": np.concatenate([before for before, _ in rows]),
        "bonus": bonus,
        "scale": scale,
    }


def _vector(mode: AutoresetMode) -> Setup:
    def setup(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
        return wrap_vector(
            SyncVectorEnv([make_env] * 2, autoreset_mode=mode),
            bonus or MIMEx(normalize=True),
        )

    return setup


def _sb3_ppo(*, at_once: bool) -> Setup:
    def setup(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
        from stable_baselines3 import PPO
        from stable_baselines3.common.vec_env import DummyVecEnv

        from mimex.interop.sb3 import BonusRolloutBuffer, BonusVecEnv

        env = BonusVecEnv(DummyVecEnv([make_env] * 2), bonus or MIMEx(normalize=True))
        policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else None
        settings: dict[str, Any] = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "device": "cpu"}
        if at_once:
            settings["rollout_buffer_class"] = BonusRolloutBuffer
            settings["rollout_buffer_kwargs"] = {"bonus": env.at_once()}
        return PPO(policy or "MlpPolicy", env, **settings).learn(128)

    return setup


def sb3_sac(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``BonusReplayBuffer`` under SAC."""
    from stable_baselines3 import SAC

    from mimex.interop.sb3 import BonusReplayBuffer, ReplayBonus

    model = SAC(
        "MlpPolicy",
        make_env(),
        learning_starts=100,
        replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": ReplayBonus(bonus or MIMEx(normalize=True))},
        buffer_size=1000,
        device="cpu",
    )
    return model.learn(120)


def torchrl_rollout(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``BonusTransform`` around two environments of TorchRL."""
    from torchrl.envs import GymWrapper, SerialEnv, TransformedEnv

    from mimex.interop.torchrl import BonusTransform

    base = SerialEnv(2, [lambda: GymWrapper(make_env())] * 2)
    env = TransformedEnv(base, BonusTransform(bonus or MIMEx(normalize=True)))
    steps = env.rollout(300, break_when_any_done=False)
    stream = env.transform.stream
    return _trained_on(
        steps["next", "reward"].flatten().numpy(),
        steps["observation"].flatten(0, 1).numpy(),
        stream,
    )


def rllib_ppo(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``add_bonus`` in PPO of RLlib."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    from mimex.interop.rllib import BonusConnector, add_bonus

    register_env("doctor", lambda config: make_env())
    episodes: list[Any] = []
    config = (
        PPOConfig()  # type: ignore[no-untyped-call]
        .environment("doctor")
        .env_runners(num_env_runners=0)
        .learners(num_learners=0)
        .training(train_batch_size=128, minibatch_size=64, num_epochs=1)
        .callbacks(on_sample_end=lambda *, samples, **rest: episodes.extend(samples))
        .debugging(seed=0, log_level="ERROR")
    )
    algorithm = add_bonus(config, bonus or MIMEx(normalize=True)).build_algo()
    algorithm.train()
    pieces = algorithm.learner_group._learner._learner_connector.connectors
    weighted = next(piece for piece in pieces if isinstance(piece, BonusConnector)).weighted
    algorithm.stop()
    # The learner repeats the last step of each episode, without reward, for its own purposes.
    return _trained_on(
        np.concatenate([episode.get_rewards()[:-1] for episode in episodes]),
        np.concatenate([episode.get_observations()[: len(episode) - 1] for episode in episodes]),
        weighted,
    )


def _trained_on(rewards: Any, observations: Any, weighted: WeightedBonus) -> dict[str, Any]:
    return {
        "targets": rewards,
        "rewards": rewards,
        "observations": observations,
        "weighted": weighted,
    }


SETUPS: dict[str, tuple[Setup, str]] = {
    "a loop of one's own": (own_loop, "mimex"),
    "mimex.wrap": (single, "mimex"),
    **{
        f"mimex.wrap_vector, autoreset {mode.name}": (_vector(mode), "mimex")
        for mode in AutoresetMode
    },
    "sb3 BonusVecEnv, PPO": (_sb3_ppo(at_once=False), "stable_baselines3"),
    "sb3 BonusRolloutBuffer, PPO": (_sb3_ppo(at_once=True), "stable_baselines3"),
    "sb3 BonusReplayBuffer, SAC": (sb3_sac, "stable_baselines3"),
    "TorchRL BonusTransform": (torchrl_rollout, "torchrl"),
    "RLlib add_bonus, PPO": (rllib_ppo, "ray.rllib"),
}
"""What our documentation shows, by name, and the package that it is for."""


def why_not(package: str) -> str | None:
    """Why a package cannot be imported, or None where it can."""
    try:
        import_module(package)
    except ImportError as error:
        return f"{package} is not installed ({error})"
    return None
