"""PixMC-Sparse: eight manipulation tasks on MuJoCo."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.vector import VectorEnv

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.agents import agent_class, ppo
from mimex.agents.drqv2 import REPLAY_ENVS, REPLAY_PIXELS, REPLAY_STATE, replay_bonuses
from mimex.agents.on_policy import LoopSettings
from mimex.bonus.size import RELEASED
from mimex.config.declared import settings_of
from mimex.config.families.base import Family, Overrides, require_preset
from mimex.config.presets import (
    ALL_WINDOWS,
    PUBLISHED_BONUSES,
    PUBLISHED_SCALE,
    SPARSE,
    SURVIVAL_SCALE,
)
from mimex.envs.catalog import NAMES, TASKS, VARIANTS, published_task, robot_and_kind, task_class
from mimex.envs.reward import SHAPINGS
from mimex.envs.settings import OBSERVATIONS, Settings

if TYPE_CHECKING:
    from mimex.config.run import TrainConfig

OF_RUN = ("reward", "observation", "image_size", "fovy", "quality", "threads", "unstable_dir")
"""Task settings that are not in the `world` section: they have a place of their own, or none."""

WORLD = [each.name for each in fields(Settings) if each.name not in OF_RUN]


class PixMC(Family):
    """The eight tasks of the paper and their variants."""

    prefix = ""
    named = NAMES
    rewards = SHAPINGS
    observations = OBSERVATIONS
    shortest_episode = 10
    sections = {"world": settings_of(Settings, WORLD)}  # noqa: RUF012 (declared by Family)

    def tasks(self) -> tuple[str, ...]:
        return NAMES

    def preset(
        self, name: str, agent: str, observation: str | None, task: str, reward: str | None = None
    ) -> Overrides:
        require_preset(name, agent, task, paper="ppo")
        observation = observation or "oracle"
        pixels = observation == "pixels"
        chosen: dict[str, Any] = {"observation": observation, "reward": "sparse"}
        if task in VARIANTS:
            chosen["world"] = VARIANTS[task][1]
        if agent == "drqv2":
            return chosen | {
                **replay_bonuses(PUBLISHED_BONUSES if pixels else None),
                "envs": REPLAY_ENVS,
                "scale": SURVIVAL_SCALE,
                "drqv2": REPLAY_PIXELS if pixels else REPLAY_STATE,
            }
        if agent != "ppo":
            return chosen | agent_class(agent).small(pixels=pixels)
        if name == "paper":
            return chosen | {
                "envs": ppo.PUBLISHED_ENVS["pixels" if pixels else "state"],
                "ppo": ppo.PPOSettings(lr=_published_lr(task, pixels)),
                "loop": LoopSettings(bonus_minibatch=ALL_WINDOWS),
                "vision": {"encoder": "vit", "image_size": 224},
                "scale": PUBLISHED_SCALE,
                **PUBLISHED_BONUSES,
                "mimex": {**PUBLISHED_BONUSES["mimex"], "padding": "zeros", "size": RELEASED},
            }
        chosen |= {
            "envs": ppo.PIXEL_ENVS if pixels else ppo.STATE_ENVS,
            "ppo": ppo.CPU_PIXELS if pixels else ppo.CPU,
            "loop": LoopSettings(train_fraction=0.125, stagger=True),
            "scale": SURVIVAL_SCALE,
        }
        if observation == "oracle" and (reward or "sparse") != "dense":
            kind = robot_and_kind(published_task(task or TASKS[0]))[1]
            return {**chosen, **SPARSE, "bonus_view": task_class(kind).explored}
        return chosen

    def kind(self, config: TrainConfig) -> str:
        return "-".join(config.curriculum) or config.reward

    def make(
        self, config: TrainConfig, num_envs: int, render_mode: str | None
    ) -> VectorEnv[Any, Any, Any]:
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


def _published_lr(task: str, pixels: bool) -> float:
    task = published_task(task or TASKS[0])
    robot = ppo.PUBLISHED_LRS.get(robot_and_kind(task)[0], ppo.PUBLISHED_LRS["Franka"])
    return ppo.PIXEL_LRS.get(task, robot) if pixels else robot


PIXMC = PixMC()
