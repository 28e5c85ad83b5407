"""What an algorithm trains on, read out of what the user's set-up returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from mimex.interop.weighted import WeightedBonus

Array = np.ndarray[Any, Any]

ROLLED_STEPS = 300
"""Steps with random actions where the set-up returned environments."""

SAMPLED_STEPS = 512
"""Transitions sampled from a replay buffer."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was found in a set-up.

    Attributes:
        targets: The numbers that the update is computed from: returns and advantages, or rewards.
        rewards: ``(M,)`` of single transitions, if known.
        observations: ``(M, D)`` from which those transitions started, if known.
        bootstrapped: Rewards of truncated transitions have the value of the final observation
            added, so they say nothing about the bonus.
        paid: Sums of absolute extrinsic and intrinsic rewards, if known.
        bonus: What paid, if it was found.
        scale: Its ``BonusScale``, if it was found.
        weighted: The ``WeightedBonus`` of one of our adapters, if there is one.
        replayed: Rewards are of sampled transitions.
    """

    targets: Array
    rewards: Array | None = None
    observations: Array | None = None
    bootstrapped: bool = False
    paid: Mapping[str, float] | None = None
    bonus: Any = None
    scale: Any = None
    weighted: Any = None
    replayed: bool = False


def gather(result: Any) -> Evidence:
    """Reads out what a set-up returned.

    Args:
        result: A model of Stable-Baselines3; environments, wrapped and not yet reset; an array of
            the targets (returns, advantages) of the update; or a mapping with ``"targets"`` and,
            if you like, ``"rewards"`` and ``"observations"`` of the same transitions,
            ``"extrinsic"`` and ``"intrinsic"`` rewards, ``"bonus"``, and ``"scale"`` (or the
            ``"weighted"`` bonus of one of our adapters, which has the last four).
    """
    if getattr(result, "rollout_buffer", None) is not None:
        return _of_rollout(result)
    if getattr(result, "replay_buffer", None) is not None:
        return _of_replay(result)
    if isinstance(result, gymnasium.Env):
        vector = SyncVectorEnv([lambda: result], autoreset_mode=AutoresetMode.SAME_STEP)
        return _of_vector(vector, _weighted_around(result))
    if isinstance(result, VectorEnv):
        return _of_vector(result, _weighted_around(result))
    if isinstance(result, Mapping):
        return _of_mapping(result)
    return Evidence(np.asarray(result, dtype=float))


def _of_mapping(found: Mapping[str, Any]) -> Evidence:
    if "targets" not in found:
        raise ValueError(f"the set-up returned {sorted(found)}; expected 'targets' among them.")
    paid = None
    if "intrinsic" in found and "extrinsic" in found:
        paid = {
            name: float(np.abs(np.asarray(found[name])).sum())
            for name in ("extrinsic", "intrinsic")
        }
    apart: dict[str, Any] = {"paid": paid, "bonus": found.get("bonus"), "scale": found.get("scale")}
    return Evidence(
        np.asarray(found["targets"], dtype=float),
        np.asarray(found["rewards"]) if "rewards" in found else None,
        np.asarray(found["observations"]) if "observations" in found else None,
        **(apart | _found(found.get("weighted"))),
    )


def _of_rollout(model: Any) -> Evidence:
    """An on-policy model of Stable-Baselines3: its returns and advantages."""
    buffer = model.rollout_buffer
    steps, envs = buffer.rewards.shape
    observations = _one(buffer.observations)
    if (
        observations is not None and buffer.generator_ready
    ):  # handing out minibatches, it flattens by environment
        observations = observations.reshape(envs, steps, -1).swapaxes(0, 1)
    targets = [np.asarray(part).reshape(-1) for part in (buffer.returns, buffer.advantages)]
    return Evidence(
        np.concatenate(targets),
        buffer.rewards.reshape(-1),
        None if observations is None else observations.reshape(steps * envs, -1),
        bootstrapped=True,
        **_found(_weighted_around(model.get_env())),
    )


def _of_replay(model: Any) -> Evidence:
    """An off-policy model of Stable-Baselines3: rewards as it samples them."""
    samples = model.replay_buffer.sample(SAMPLED_STEPS, env=model.get_vec_normalize_env())
    rewards = samples.rewards[:, 0].cpu().numpy()
    observations = samples.observations
    return Evidence(
        rewards,
        rewards,
        _one({k: v.cpu().numpy() for k, v in observations.items()})
        if isinstance(observations, dict)
        else observations.cpu().numpy(),
        replayed=True,
        **_found(getattr(model.replay_buffer, "bonus", None)),
    )


def _of_vector(env: VectorEnv[Any, Any, Any], weighted: WeightedBonus | None) -> Evidence:
    mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
    env.action_space.seed(0)
    observations, _ = env.reset(seed=0)
    over = np.zeros(env.num_envs, dtype=bool)
    left, rewards = [], []
    for _ in range(ROLLED_STEPS):
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = env.reset(options={"reset_mask": over})
        no_transition = over if mode is AutoresetMode.NEXT_STEP else np.zeros_like(over)
        before = observations
        observations, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        over = np.asarray(terminated) | np.asarray(truncated)
        seen = _one(before)
        if seen is not None:
            left.append(np.array(seen)[~no_transition])
        rewards.append(np.array(reward)[~no_transition])
    env.close()
    paid = np.concatenate(rewards)
    return Evidence(paid, paid, np.concatenate(left) if left else None, **_found(weighted))


def _one(observations: Any) -> Any:
    """Observations, or of a dict of them the first entry that is no picture; None without one."""
    if not isinstance(observations, Mapping):
        return observations
    return next((v for v in observations.values() if np.ndim(v) < 4), None)


def _weighted_around(env: Any) -> WeightedBonus | None:
    """The bonus with its scale, where one of our wrappers is among those of an environment."""
    while env is not None:
        if (stream := vars(env).get("stream")) is not None:
            return cast("WeightedBonus", stream)
        env = vars(env).get("venv", vars(env).get("env"))
    return None


def _found(weighted: WeightedBonus | None) -> dict[str, Any]:
    if weighted is None:
        return {}
    found = {name: getattr(weighted, name) for name in ("paid", "bonus", "scale")}
    return found | {"weighted": weighted}
