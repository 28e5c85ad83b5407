"""From settings to the parts of a run."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.agents.encoders import ConvolutionalEncoder, Encoder, FrozenEncoder, VectorEncoder
from mimex.agents.ppo import PPO
from mimex.bonus.base import IntrinsicReward, NoBonus
from mimex.bonus.icm import ICM
from mimex.bonus.mimex import MIMEx
from mimex.bonus.pseudocount import PseudoCount
from mimex.bonus.rnd import RND
from mimex.bonus.scale import BonusScale
from mimex.config import TrainConfig
from mimex.nn.vit import SOURCES, ViT, load_pretrained
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


def make_encoder(config: TrainConfig, space: spaces.Space[Any]) -> Encoder:
    """The encoder of a kind of observation."""
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


def make_agent(config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> PPO:
    """The agent, with fresh weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(config, "weights"))
        encoder = make_encoder(config, env.single_observation_space)
        action_dim = env.single_action_space.shape[0]  # type: ignore[index]
        return PPO(encoder, action_dim, config.ppo, seed_for(config, "actions"))


def make_bonus(config: TrainConfig, feature_dim: int, action_dim: int) -> IntrinsicReward:
    """The bonus that the settings name."""
    seed = seed_for(config, "bonus")
    if config.bonus == "mimex":
        chosen = dict(vars(config.mimex))
        if chosen.pop("actions"):
            chosen["action_dim"] = action_dim
        return MIMEx(feature_dim, seed=seed, **chosen)
    if config.bonus == "rnd":
        return RND(feature_dim, seed=seed, **vars(config.rnd))
    if config.bonus == "icm":
        return ICM(feature_dim, action_dim, seed=seed, **vars(config.icm))
    if config.bonus == "pseudocount":
        return PseudoCount(feature_dim, seed=seed, **vars(config.pseudocount))
    return NoBonus()


def make_training(config: TrainConfig) -> Training:
    """A run that has not begun."""
    env = make_env(config, config.envs)
    agent = make_agent(config, env)
    return Training(
        config.loop,
        env,
        agent,
        make_bonus(config, agent.encoder.feature_dim, agent.action_dim),
        BonusScale(
            discount=config.ppo.intrinsic_discount,
            over_steps=None if config.scale.schedule == "constant" else config.steps,
            **vars(config.scale),
        ),
        seeds={name: seed_for(config, name) for name in ("environment", "minibatches")},
    )
