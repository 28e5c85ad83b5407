"""From settings to the parts of a run, and from a run folder back to its agent."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Generator, Tensor

from mimex.agents.actions import ActionWriter
from mimex.agents.drqv2 import DrQv2
from mimex.agents.encoders import (
    ConvolutionalEncoder,
    Encoder,
    FrozenEncoder,
    ObservationReader,
    VectorEncoder,
)
from mimex.agents.ppo import PPO
from mimex.bonus import bonus_class
from mimex.bonus.base import IntrinsicReward, NoBonus
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.scale import BonusScale
from mimex.config import TrainConfig, family_of
from mimex.contracts import (
    Agent,
    Located,
    Observer,
    Policy,
    episode_steps,
    frames_per_step,
    speaks_tensors,
)
from mimex.data.replay import ReplayBuffer
from mimex.nn import processes
from mimex.nn.vit import SOURCES, ViT, load_pretrained
from mimex.train.checkpoint import Checkpoints
from mimex.train.coverage import FIRST_STATES
from mimex.train.curriculum import Curriculum
from mimex.train.episodes import Episodes
from mimex.train.folder import RunFolder
from mimex.train.loop import Clock, Training
from mimex.train.novelty import Novelty, observes_numbers
from mimex.train.off_policy import PICTURES_EVERY, OffPolicyAgent
from mimex.train.on_policy import OnPolicyAgent
from mimex.train.restarts import Restarts
from mimex.train.view import view_indices

Which = Literal["latest", "best"]

_PURPOSES = ("environment", "weights", "actions", "bonus", "minibatches", "evaluation", "restarts")


REMEMBER_EPISODES = 10
"""Training episodes that DrQ-v2's metrics are about: as many as it evaluates."""


class UntrustedModuleError(ValueError):
    """The settings in a run folder name a module that the user has not agreed to import."""


def seed_for(config: TrainConfig, purpose: str, *more: int) -> int:
    """A seed for one purpose, independent of those for the others.

    Args:
        config: Has the run's.
        purpose: One of a few words.
        more: Numbers that give yet another one, unless all are 0.
    """
    key = (_PURPOSES.index(purpose), *(more if any(more) else ()))
    return int(np.random.SeedSequence(config.seed, spawn_key=key).generate_state(1)[0])


def make_env(
    config: TrainConfig, num_envs: int, render_mode: str | None = None
) -> VectorEnv[Any, Any, Any]:
    """Environments of the run's task."""
    return family_of(config.task).make(config, num_envs, render_mode)


def make_encoder(config: TrainConfig, reader: ObservationReader) -> Encoder:
    """PPO's encoder of a kind of observation."""
    if reader.image is None:
        return VectorEncoder(reader)
    vision = config.vision
    if vision.encoder == "cnn":
        return ConvolutionalEncoder(reader)
    if vision.checkpoint is None:
        raise ValueError(
            f"--vision.encoder vit needs --vision.checkpoint, a file with the weights of {SOURCES}"
        )
    network = ViT(vision.image_size, heads=vision.heads)
    load_pretrained(network, vision.checkpoint)
    return FrozenEncoder(network, reader)


def make_algorithm(config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> PPO | DrQv2:
    """The algorithm that the settings name, with fresh weights."""
    reader = ObservationReader(env.single_observation_space, config.device_name)
    actions = ActionWriter(env.single_action_space)
    if config.agent == "drqv2":
        return DrQv2(reader, actions, config.drqv2, seed_for(config, "weights"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(config, "weights"))
        encoder = make_encoder(config, reader)
        return PPO(encoder, actions, config.ppo, seed_for(config, "actions"))


def make_bonus(
    config: TrainConfig,
    feature_dim: int,
    action_dim: int,
    *,
    discrete_obs: bool = False,
    discrete: bool = False,
) -> IntrinsicReward:
    """The bonus that the settings name.

    Args:
        config: The settings.
        feature_dim: Features of a step.
        action_dim: Numbers of an action.
        discrete_obs: Features are one-hot codes of discrete observations.
        discrete: Actions are one-hot codes, each of one discrete action.
    """
    kind = bonus_class(config.bonus)
    if not hasattr(config, config.bonus):  # it has no settings, and looks at nothing
        plain: IntrinsicReward = kind()
        return plain
    chosen = vars(getattr(config, config.bonus))
    given: dict[str, Any] = {"seed": seed_for(config, "bonus"), "device": config.device_name}
    parameters = signature(kind).parameters
    if "action_dim" in parameters and chosen.get("actions", True):
        given["action_dim"] = action_dim
    kinds = {"discrete_obs": discrete_obs, "discrete": discrete}
    given |= {name: value for name, value in kinds.items() if name in parameters}
    bonus: IntrinsicReward = kind(feature_dim, **given, **chosen)
    if isinstance(bonus, MaskedPrediction) and bonus.encoder is not None:
        bonus.feature_dim = 0  # its encoder decides: the first window builds the networks
    return bonus


def make_view(
    config: TrainConfig, env: VectorEnv[Any, Any, Any], reader: ObservationReader, feature_dim: int
) -> Tensor | None:
    """Indices of the features that the bonus sees; None for all."""
    if config.bonus_view and (reader.image is not None or reader.vector != feature_dim):
        raise ValueError(
            f"--bonus-view is {' '.join(config.bonus_view)}, but the bonus sees an encoder's "
            f"{feature_dim} features here, which have no names: leave it out, or observe a vector"
        )
    groups = getattr(env.unwrapped, "observation_groups", None) or reader.groups
    return view_indices(config.bonus_view, groups, feature_dim)


def _width(view: Tensor | None, feature_dim: int) -> int:
    return feature_dim if view is None else len(view)


def make_scale(config: TrainConfig, discount: float, frames: int = 1) -> BonusScale:
    """The size of the bonus over the run, whose schedule counts steps of so many frames."""
    horizon = (config.horizon or config.steps) // frames
    return BonusScale(
        discount=discount,
        over_steps=None if config.scale.schedule == "constant" else max(horizon, 1),
        **vars(config.scale),
    )


def make_training(config: TrainConfig) -> Training:
    """A run that has not begun, or this process's share of it."""
    env, clock = make_env(config, config.envs // processes.size()), Clock()
    make = {"ppo": _on_policy, "drqv2": _off_policy}[config.agent]
    agent, remember, pictures_every, stagger = make(config, env, clock)
    observers: dict[str, Observer] = {
        "episodes": Episodes(env.num_envs, remember, frames_per_step(env))
    }
    if isinstance(env.unwrapped, Located) or observes_numbers(env):
        observers["novelty"] = Novelty(env, FIRST_STATES // pictures_every)
    if config.curriculum:
        observers["curriculum"] = Curriculum(env, config.curriculum, config.curriculum_success)
    restarts = None
    if config.restarts.share:
        seed = seed_for(config, "restarts", processes.rank())
        restarts = Restarts(env, config.restarts, config.task, seed)
    training = Training(
        env,
        agent,
        observers,
        seed=seed_for(config, "environment", processes.rank()),
        restarts=restarts,
        stagger=stagger,
        clock=clock,
    )
    if processes.rank() > 0:
        draw_anew(config, training)
    return training


def draw_anew(config: TrainConfig, training: Training, step: int = 0) -> None:
    """Lets this process draw other random numbers than all others, and than at other steps."""
    agent = training.agent
    parts: dict[str, Any] = {"actions": agent.algorithm, "bonus": agent.bonus, "minibatches": agent}
    for purpose, part in parts.items():
        if hasattr(part, "generator"):  # a bonus that looks at nothing draws nothing
            seed = seed_for(config, purpose, processes.rank(), step)
            part.generator.manual_seed(seed)


Parts = tuple[Agent, int, int, Generator | None]
"""An agent, episodes that its metrics are about, steps between two that it scores for a map, and
where the ages of the first episodes are drawn from."""


def _on_policy(config: TrainConfig, env: VectorEnv[Any, Any, Any], clock: Clock) -> Parts:
    algorithm = make_algorithm(config, env)
    assert isinstance(algorithm, PPO)
    view = make_view(config, env, algorithm.encoder.reader, algorithm.feature_dim)
    agent = OnPolicyAgent(
        algorithm,
        make_bonus(
            config,
            _width(view, algorithm.feature_dim),
            algorithm.action_dim,
            discrete_obs=algorithm.encoder.reader.discrete,
            discrete=algorithm.actions.discrete and config.loop.stride == 1,
        ),
        make_scale(config, config.ppo.intrinsic_discount, frames_per_step(env)),
        config.loop,
        view=view,
        num_envs=env.num_envs,
        frames_per_step=frames_per_step(env),
        horizon=config.horizon or config.steps,
        tensors=speaks_tensors(env),
        seed=seed_for(config, "minibatches"),
        clock=clock,
    )
    stagger = agent.generator if config.loop.stagger else None
    return agent, max(100, config.envs), 1, stagger


def _off_policy(config: TrainConfig, env: VectorEnv[Any, Any, Any], clock: Clock) -> Parts:
    algorithm = make_algorithm(config, env)
    assert isinstance(algorithm, DrQv2)
    view = make_view(config, env, algorithm.reader, algorithm.feature_dim)
    bonus = make_bonus(
        config,
        _width(view, algorithm.feature_dim),
        algorithm.action_dim,
        discrete_obs=algorithm.reader.discrete and config.drqv2.features != "trunk",
    )
    agent = OffPolicyAgent(
        algorithm,
        bonus,
        make_scale(config, config.drqv2.discount),
        make_replay(config, env, algorithm, bonus),
        config.off_policy,
        view=view,
        save_replay=config.replay.save,
        frames_per_step=frames_per_step(env),
        seed=seed_for(config, "minibatches"),
        clock=clock,
    )
    return agent, REMEMBER_EPISODES, PICTURES_EVERY if algorithm.pixels else 1, None


def make_replay(
    config: TrainConfig, env: VectorEnv[Any, Any, Any], algorithm: DrQv2, bonus: IntrinsicReward
) -> ReplayBuffer:
    """An empty buffer, no larger than the run can fill."""
    stack = getattr(env.unwrapped, "stack", 1) if algorithm.pixels else 1
    frame = (algorithm.shape[0] // stack, *algorithm.shape[1:])
    steps = config.steps // frames_per_step(env)
    # An episode has one observation more than steps.
    shortest = min(family_of(config.task).shortest_episode, episode_steps(env))
    needed = steps + steps // shortest + 100 * config.envs
    window = 0 if isinstance(bonus, NoBonus) else bonus.length
    return ReplayBuffer(
        min(config.replay.capacity, needed),
        frame,
        algorithm.action_dim,
        pixels=algorithm.pixels,
        num_envs=config.envs,
        stack=stack,
        n_step=config.drqv2.n_step,
        discount=config.drqv2.discount,
        window=window,
        ends_at=config.off_policy.ends_at,
        stride=config.off_policy.stride,
        run=config.replay.run,
        folder=config.folder / "replay",
        memory_mapped=config.replay.memory_mapped,
        device=algorithm.device,
    )


def load_agent(
    run: Path, which: Which, trust_modules: Collection[str] = ()
) -> tuple[TrainConfig, Policy, int]:
    """The settings of a run, its agent, and the step that the agent was saved at.

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
    agent = make_algorithm(config, env)
    env.close()
    with checkpoints.fitting():
        agent.load_state_dict(saved[1]["agent"]["algorithm"])
    return config, agent, saved[0]


def _require_trusted(run: Path, config: TrainConfig, trusted: Collection[str]) -> None:
    """Raises an error if a folder's settings name a module that the user has not named."""
    for module in family_of(config.task).modules(config):
        if module not in trusted:
            raise UntrustedModuleError(
                f"{run / 'config.json'} names the module {module!r}, whose code would be executed: "
                f"add --trust-modules {shlex.quote(module)} if you know who wrote it"
            )
