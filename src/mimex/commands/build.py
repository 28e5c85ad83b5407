"""Construction of runs from settings, and loading of policies from run folders."""

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


class UntrustedModuleError(RuntimeError):
    """The settings in a run folder name a module that the user has not agreed to import."""


def make_env(
    config: TrainConfig, num_envs: int, render_mode: str | None = None
) -> VectorEnv[Any, Any, Any]:
    """Creates environments of the run's task."""
    return family_of(config.task).make(config, num_envs, render_mode)


def make_training(config: TrainConfig) -> Training:
    """Creates a new run, or the part of it that belongs to this process."""
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
    """Seeds the random number generators of this process by its rank and the step."""
    agent = training.agent
    parts: dict[str, Any] = {"actions": agent.algorithm, "bonus": agent.bonus, "minibatches": agent}
    for purpose, part in parts.items():
        if hasattr(part, "generator"):  # not all bonuses have one
            part.generator.manual_seed(seed_for(config, purpose, processes.rank(), step))


class LoadedPolicy(NamedTuple):
    """A trained policy, the settings of its run, and the step of its checkpoint."""

    config: TrainConfig
    policy: Policy
    step: int


def load_agent(run: Path, which: Which, trust_modules: Collection[str] = ()) -> LoadedPolicy:
    """Loads the policy of a run folder.

    Args:
        run: The run folder.
        which: The "latest" checkpoint, or that of the "best" evaluation.
        trust_modules: Modules that the run's task may import.
    """
    folder = RunFolder(run)
    saved_config = folder.config
    if saved_config is None:
        raise ValueError(f"{run} is not a run folder: it has no config.json of `mimex train`")
    try:
        config = TrainConfig.from_dict(saved_config)
        _require_trusted(run, config, trust_modules)
        config = config.checked()
    except ValueError as error:
        raise ValueError(f"{run / 'config.json'} is invalid: {error}; restore it") from error
    checkpoints = Checkpoints(folder.checkpoints)
    saved = checkpoints.latest() if which == "latest" else checkpoints.best()
    if saved is None:
        raise ValueError(f"{run} has no {which} checkpoint yet: train it further")
    env = make_env(config, 1)
    policy = agent_class(config.agent).make_algorithm(config, env)
    env.close()
    with checkpoints.loading():
        policy.load_state_dict(saved[1]["agent"]["algorithm"])
    return LoadedPolicy(config, policy, step=saved[0])


def _require_trusted(run: Path, config: TrainConfig, trusted: Collection[str]) -> None:
    for module in family_of(config.task).modules(config):
        if module not in trusted:
            raise UntrustedModuleError(
                f"{run / 'config.json'} names the module {module!r}, whose code would be executed: "
                f"add --trust-modules {shlex.quote(module)} if you trust its author"
            )
