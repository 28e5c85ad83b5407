"""From settings to the parts of a run, and from a run folder back to its agent."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gymnasium.vector import VectorEnv

from mimex.agents import agent_class
from mimex.agents.factory import seed_for
from mimex.config import TrainConfig, family_of
from mimex.contracts import Callback, Located, Policy, frames_per_step
from mimex.nn import processes
from mimex.track.clock import Clock
from mimex.train.checkpoint import Checkpoints
from mimex.train.coverage import FIRST_STATES
from mimex.train.curriculum import Curriculum
from mimex.train.episodes import Episodes
from mimex.train.folder import RunFolder
from mimex.train.novelty import Novelty, has_vector_observations
from mimex.train.restarts import Restarts
from mimex.train.runner import Training

Which = Literal["latest", "best"]


class UntrustedModuleError(ValueError):
    """The settings in a run folder name a module that the user has not agreed to import."""


def make_env(
    config: TrainConfig, num_envs: int, render_mode: str | None = None
) -> VectorEnv[Any, Any, Any]:
    """Environments of the run's task."""
    return family_of(config.task).make(config, num_envs, render_mode)


def make_training(config: TrainConfig) -> Training:
    """A run that has not begun, or this process's share of it."""
    env, clock = make_env(config, config.envs // processes.size()), Clock()
    agent = agent_class(config.agent).build(config, env, clock)
    callbacks: dict[str, Callback] = {
        "episodes": Episodes(env.num_envs, agent.recent_episodes, frames_per_step(env))
    }
    if isinstance(env.unwrapped, Located) or has_vector_observations(env):
        callbacks["novelty"] = Novelty(env, FIRST_STATES // agent.score_every)
    if config.curriculum:
        callbacks["curriculum"] = Curriculum(env, config.curriculum, config.curriculum_success)
    restarts = None
    if config.restarts.share:
        seed = seed_for(config, "restarts", processes.rank())
        restarts = Restarts(env, config.restarts, config.task, seed)
    training = Training(
        env,
        agent,
        callbacks,
        seed=seed_for(config, "environment", processes.rank()),
        restarts=restarts,
        stagger=agent.stagger,
        clock=clock,
    )
    if processes.rank() > 0:
        reseed(config, training)
    return training


def reseed(config: TrainConfig, training: Training, step: int = 0) -> None:
    """Gives the generators of this process seeds of its own, which depend on the step."""
    agent = training.agent
    parts: dict[str, Any] = {"actions": agent.algorithm, "bonus": agent.bonus, "minibatches": agent}
    for purpose, part in parts.items():
        if hasattr(part, "generator"):  # a bonus that looks at nothing draws nothing
            seed = seed_for(config, purpose, processes.rank(), step)
            part.generator.manual_seed(seed)


class LoadedAgent(NamedTuple):
    """The policy of a run, with the run's settings and the step of the checkpoint."""

    config: TrainConfig
    policy: Policy
    step: int


def load_agent(run: Path, which: Which, trust_modules: Collection[str] = ()) -> LoadedAgent:
    """Loads the policy of a run folder.

    Args:
        run: The run folder.
        which: The "latest" checkpoint, or that of the "best" evaluation.
        trust_modules: Modules that may be imported if the run's task is registered by one.
    """
    folder = RunFolder(run)
    saved_config = folder.config
    if saved_config is None:
        raise ValueError(f"{run} is no run folder: it has no config.json; `mimex train` makes one")
    try:
        config = TrainConfig.from_dict(saved_config)
        _require_trusted(run, config, trust_modules)
        config = config.checked()
    except UntrustedModuleError:
        raise
    except ValueError as error:
        raise ValueError(f"{run / 'config.json'} is no run's: {error}; restore it") from error
    checkpoints = Checkpoints(folder.checkpoints)
    saved = checkpoints.latest() if which == "latest" else checkpoints.best()
    if saved is None:
        raise ValueError(f"{run} has no {which} checkpoint yet: train it further")
    env = make_env(config, 1)
    policy = agent_class(config.agent).make_algorithm(config, env)
    env.close()
    with checkpoints.loading():
        policy.load_state_dict(saved[1]["agent"]["algorithm"])
    return LoadedAgent(config, policy, step=saved[0])


def _require_trusted(run: Path, config: TrainConfig, trusted: Collection[str]) -> None:
    """Raises an error if a folder's settings name a module that the user has not named."""
    for module in family_of(config.task).modules(config):
        if module not in trusted:
            raise UntrustedModuleError(
                f"{run / 'config.json'} names the module {module!r}, whose code would be executed: "
                f"add --trust-modules {shlex.quote(module)} if you know who wrote it"
            )
