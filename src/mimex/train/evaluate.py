"""Evaluation and rendering of policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from mimex.contracts import Policy, final_successes
from mimex.types import Metrics


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Returns the 95 % Wilson score interval of a success rate."""
    from scipy.stats import binomtest  # slow to import

    found = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation; ``successes`` is None if the task does not report success."""

    episodes: int
    successes: int | None
    mean_return: float
    mean_steps: float

    @property
    def score(self) -> float:
        """The success rate, or the return if the task does not report success."""
        return self.mean_return if self.successes is None else self.successes / self.episodes

    def metrics(self) -> Metrics:
        """Metrics under ``eval/``."""
        metrics = {"eval/return": self.mean_return, "eval/episode_steps": self.mean_steps}
        if self.successes is not None:
            low, high = wilson(self.successes, self.episodes)
            metrics |= {"eval/success_low": low, "eval/success_high": high}
            metrics["eval/success"] = self.successes / self.episodes
        return metrics


def evaluate(
    env: VectorEnv[Any, Any, Any],
    agent: Policy,
    *,
    seed: int,
    reports_success: bool = False,
    progress: Callable[[int], None] = lambda steps: None,
) -> Evaluation:
    """Runs one episode in each environment, with deterministic actions.

    Args:
        env: Environments with automatic resets.
        agent: The policy.
        seed: Seed of the initial states.
        reports_success: The task reports success: an episode without a report has failed.
        progress: Called with the number of steps after each step.
    """
    observation, _ = env.reset(seed=seed)
    running = np.ones(env.num_envs, bool)
    success: NDArray[np.bool_] | None = np.zeros(env.num_envs, bool) if reports_success else None
    returns, steps = np.zeros(env.num_envs), np.zeros(env.num_envs)
    while running.any():
        actions = agent.policy(observation)
        observation, rewards, terminated, truncated, info = env.step(actions)
        ended = running & (terminated | truncated)
        returns += rewards * running
        steps += running
        found = final_successes(info)
        if found is not None:
            success = np.zeros(env.num_envs, bool) if success is None else success
            success[ended] = found[ended]
        running &= ~ended
        progress(int(steps.max()))
    successes = None if success is None else int(success.sum())
    return Evaluation(env.num_envs, successes, float(returns.mean()), float(steps.mean()))


def rollout_images(
    env: VectorEnv[Any, Any, Any],
    agent: Policy,
    *,
    seed: int,
    episodes: int = 1,
    on_end: Callable[[Evaluation], None] = lambda outcome: None,
) -> Iterator[Any]:
    """Yields an image ``(H, W, 3)`` per step, or None if the environment is not rendered.

    Args:
        env: A single environment.
        agent: The policy, which acts deterministically.
        seed: Seed of the first episode.
        episodes: Number of episodes.
        on_end: Called with the outcome of each episode.
    """
    observation, _ = env.reset(seed=seed)
    returned, steps = 0.0, 0
    while episodes:
        rendered: Any = env.render() if env.render_mode else None
        yield None if rendered is None else rendered[0]
        observation, rewards, terminated, truncated, info = env.step(agent.policy(observation))
        returned, steps = returned + float(rewards[0]), steps + 1
        if terminated[0] or truncated[0]:
            found = final_successes(info)
            on_end(Evaluation(1, None if found is None else int(found[0]), returned, steps))
            returned, steps, episodes = 0.0, 0, episodes - 1
