"""From settings to the parts of a run."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.agents.drqv2 import DrQv2
from mimex.agents.encoders import ConvolutionalEncoder, Encoder, FrozenEncoder, VectorEncoder
from mimex.agents.ppo import PPO
from mimex.bonus.base import ConstantBonus, IntrinsicReward, NoBonus
from mimex.bonus.icm import ICM
from mimex.bonus.masks import FeatureMask
from mimex.bonus.mimex import MIMEx
from mimex.bonus.pseudocount import PseudoCount
from mimex.bonus.rnd import RND
from mimex.bonus.scale import BonusScale
from mimex.config import TrainConfig, of_suite
from mimex.data.replay import ReplayBuffer
from mimex.nn.parallel import available_cores
from mimex.nn.vit import SOURCES, ViT, load_pretrained
from mimex.train.evaluate import Agent
from mimex.train.off_policy_training import OffPolicyTraining
from mimex.train.training import Training

_PURPOSES = ("environment", "weights", "actions", "bonus", "minibatches", "evaluation")


def seed_for(config: TrainConfig, purpose: str) -> int:
    """A seed for one purpose, independent of those for the others."""
    children = np.random.SeedSequence(config.seed).spawn(len(_PURPOSES))
    return int(children[_PURPOSES.index(purpose)].generate_state(1)[0])


def make_env(
    config: TrainConfig, num_envs: int, render_mode: str | None = None
) -> VectorEnv[Any, Any, Any]:
    """Environments of the run's task."""
    if of_suite(config.task):
        return gymnasium.make_vec(
            config.task,
            num_envs=num_envs,
            render_mode=render_mode,
            observation=config.observation,
            threads=config.threads or available_cores(),
            **vars(config.suite),
        )
    return gymnasium.make_vec(
        f"mimex/{config.task}-v0",
        num_envs=num_envs,
        render_mode=render_mode,
        reward=config.reward,
        observation=config.observation,
        image_size=config.vision.image_size,
        threads=config.threads,
        **vars(config.world),
    )


def episode_steps(env: VectorEnv[Any, Any, Any]) -> int:
    """Steps after which an episode of a run's environments is cut off."""
    simulation: Any = env.unwrapped
    return int(simulation.episode_steps)


def make_encoder(config: TrainConfig, space: spaces.Space[Any]) -> Encoder:
    """PPO's encoder of a kind of observation."""
    if isinstance(space, spaces.Box):
        return VectorEncoder(space.shape[0])
    assert isinstance(space, spaces.Dict)
    joints = space["robot"].shape
    assert joints is not None
    vision = config.vision
    if vision.encoder == "cnn":
        return ConvolutionalEncoder(vision.image_size, joints[0])
    if vision.checkpoint is None:
        raise ValueError(
            f"--vision.encoder vit needs --vision.checkpoint, a file with the weights of {SOURCES}"
        )
    network = ViT(vision.image_size, heads=vision.heads)
    load_pretrained(network, vision.checkpoint)
    return FrozenEncoder(network, joints[0])


def make_agent(config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> Agent:
    """The agent that the settings name, with fresh weights."""
    return make_drqv2(config, env) if config.agent == "drqv2" else make_ppo(config, env)


def make_ppo(config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> PPO:
    """PPO, with fresh weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(config, "weights"))
        encoder = make_encoder(config, env.single_observation_space)
        action_dim = env.single_action_space.shape[0]  # type: ignore[index]
        return PPO(encoder, action_dim, config.ppo, seed_for(config, "actions"))


def make_drqv2(config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> DrQv2:
    """DrQ-v2, with fresh weights."""
    seen, actions = env.single_observation_space, env.single_action_space
    if not isinstance(actions, spaces.Box):
        raise ValueError(
            f"{config.task} has the action space {actions}, but drqv2 needs a box of real "
            "numbers: choose a task with continuous actions"
        )
    assert seen.shape is not None
    return DrQv2(seen.shape, actions.shape[0], config.drqv2, seed_for(config, "weights"))


def make_bonus(config: TrainConfig, feature_dim: int, action_dim: int) -> IntrinsicReward:
    """The bonus that the settings name."""
    seed = seed_for(config, "bonus")
    if config.bonus == "mimex":
        chosen = dict(vars(config.mimex))
        if chosen.pop("mask_type") == "feature":
            chosen["mask"] = FeatureMask(chosen["mask_ratio"])
        if chosen.pop("actions"):
            chosen["action_dim"] = action_dim
        return MIMEx(feature_dim, seed=seed, **chosen)
    if config.bonus == "rnd":
        return RND(feature_dim, seed=seed, **vars(config.rnd))
    if config.bonus == "icm":
        return ICM(feature_dim, action_dim, seed=seed, **vars(config.icm))
    if config.bonus == "pseudocount":
        return PseudoCount(feature_dim, seed=seed, **vars(config.pseudocount))
    return ConstantBonus() if config.bonus == "constant" else NoBonus()


def make_scale(config: TrainConfig, discount: float) -> BonusScale:
    """The size of the bonus over the run."""
    return BonusScale(
        discount=discount,
        over_steps=None if config.scale.schedule == "constant" else config.horizon or config.steps,
        **vars(config.scale),
    )


def make_training(config: TrainConfig) -> Training:
    """An on-policy run that has not begun."""
    env = make_env(config, config.envs)
    agent = make_ppo(config, env)
    return Training(
        config.loop,
        env,
        agent,
        make_bonus(config, agent.encoder.feature_dim, agent.action_dim),
        make_scale(config, config.ppo.intrinsic_discount),
        seeds={name: seed_for(config, name) for name in ("environment", "minibatches")},
        horizon=config.horizon or config.steps,
    )


def make_off_policy(config: TrainConfig) -> OffPolicyTraining:
    """An off-policy run that has not begun."""
    env = make_env(config, config.envs)
    agent = make_drqv2(config, env)
    bonus = make_bonus(config, agent.feature_dim, agent.action_dim)
    return OffPolicyTraining(
        config.off_policy,
        env,
        agent,
        bonus,
        make_scale(config, config.drqv2.discount),
        make_replay(config, agent, bonus),
        seeds={name: seed_for(config, name) for name in ("environment", "minibatches")},
        save_replay=config.replay.save,
    )


def make_replay(config: TrainConfig, agent: DrQv2, bonus: IntrinsicReward) -> ReplayBuffer:
    """An empty buffer, no larger than the run can fill."""
    stack = config.suite.stack if agent.pixels else 1
    frame = (agent.shape[0] // stack, *agent.shape[1:])
    steps = config.steps // config.suite.action_repeat
    # An episode has one observation more than steps; they are hundreds of steps long.
    needed = steps + steps // 10 + 100 * config.envs
    window = 0 if isinstance(bonus, NoBonus) else bonus.length
    return ReplayBuffer(
        min(config.replay.capacity, needed),
        frame,
        agent.action_dim,
        pixels=agent.pixels,
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
    )
