"""How good a policy is: many episodes for a success rate, or one to look at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from mimex.agents.ppo import PPO
from mimex.types import Metrics

Z95 = 1.959964
"""Standard deviations of a normal that hold 95 % of it."""


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a success rate (Wilson, 1927), which holds for few trials too."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"{successes} successes of {trials} trials: expected 0 <= both, trials > 0."
        )
    rate, spread = successes / trials, Z95**2 / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Evaluation:
    """What episodes of one policy came to."""

    episodes: int
    successes: int
    mean_return: float
    mean_steps: float

    @property
    def success(self) -> float:
        """The success rate."""
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the success rate."""
        return wilson(self.successes, self.episodes)

    def metrics(self) -> Metrics:
        """By the names of a run's metrics."""
        low, high = self.interval
        return {
            "eval/success": self.success,
            "eval/success_low": low,
            "eval/success_high": high,
            "eval/return": self.mean_return,
            "eval/episode_steps": self.mean_steps,
        }


def evaluate(
    env: VectorEnv[Any, Any, Any], agent: PPO, *, seed: int, deterministic: bool = True
) -> Evaluation:
    """Plays one episode in each environment; starts depend on the seed alone.

    Args:
        env: Environments with automatic resets.
        agent: Whose policy acts.
        seed: Of the starts.
        deterministic: Take the policy's mean; otherwise draw, from the agent's own generator.
    """
    observation, _ = env.reset(seed=seed)
    running = np.ones(env.num_envs, bool)
    success = np.zeros(env.num_envs, bool)
    returns, steps = np.zeros(env.num_envs), np.zeros(env.num_envs)
    while running.any():
        actions = agent.act(agent.encoder.read(observation), deterministic=deterministic)[0]
        observation, rewards, terminated, truncated, info = env.step(actions.numpy())
        ended = running & (terminated | truncated)
        returns += rewards * running
        steps += running
        if ended.any():
            success[ended] = info["final_info"]["success"][ended]
        running &= ~ended
    return Evaluation(env.num_envs, int(success.sum()), float(returns.mean()), float(steps.mean()))


def pictures(
    env: VectorEnv[Any, Any, Any], agent: PPO, *, seed: int, episodes: int = 1
) -> Iterator[NDArray[np.uint8]]:
    """Pictures (height, width, 3) of episodes, one for each step.

    Args:
        env: One environment, with ``render_mode="rgb_array"``.
        agent: Whose policy acts, without noise.
        seed: Of the first start.
        episodes: How many.
    """
    observation, _ = env.reset(seed=seed)
    while episodes:
        rendered: Any = env.render()
        yield rendered[0]
        actions = agent.act(agent.encoder.read(observation), deterministic=True)[0]
        observation, _, terminated, truncated, _ = env.step(actions.numpy())
        episodes -= int(terminated[0] or truncated[0])
