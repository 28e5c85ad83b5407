"""The DeepMind Control suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import gymnasium
import tyro
from gymnasium.vector import VectorEnv

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.agents import agent_class
from mimex.agents.drqv2 import MIMEX, PUBLISHED, DrQv2Settings, replay_bonuses
from mimex.bonus.size import RELEASED
from mimex.config.families.base import OWN, Family, Overrides, require_preset
from mimex.config.presets import PUBLISHED_BONUSES, PUBLISHED_SCALE, SMALL_IMAGES
from mimex.envs.dmc_tasks import NAMES, PREFIX
from mimex.envs.nearest import choose
from mimex.nn.parallel import available_cores

if TYPE_CHECKING:
    from mimex.config.run import TrainConfig

QUALITIES = ("published", "fast")

FRAMES = {"state": 500_000, "pixels": 1_000_000}
"""Default length of a run by observation."""

MEDIUM = [
    "acrobot_swingup",
    "cartpole_swingup_sparse",
    "cheetah_run",
    "finger_turn_easy",
    "finger_turn_hard",
    "hopper_hop",
    "quadruped_run",
    "quadruped_walk",
    "reacher_easy",
    "reacher_hard",
    "walker_run",
]
HARD = ("humanoid_stand", "humanoid_walk", "humanoid_run")
"""Medium and hard tasks according to DrQ-v2 (cfgs/task/*.yaml), whose noise is annealed over more
steps. All others are easy."""

EXCEPTIONS: Mapping[str, Mapping[str, Any]] = {
    "walker": {"n_step": 1, "batch": 512},
    "humanoid": {"lr": 8e-5, "trunk": 100},
}
"""DrQ-v2's published settings that differ by domain."""

NOISE_STEPS = dict.fromkeys(MEDIUM, 500_000) | dict.fromkeys(HARD, 2_000_000)
"""Agent steps over which the noise is annealed in medium and hard tasks."""


@dataclass(frozen=True)
class SuiteSettings:
    """Settings of the DeepMind Control suite; the defaults are those of DrQ-v2."""

    action_repeat: int = 2
    """Control steps (frames) per action."""
    image_size: int = 84
    """Width and height of images (pixels)."""
    stack: int = 3
    """Frames per observation (frame stacking)."""
    quality: Annotated[str, tyro.conf.arg(metavar="{published,fast}")] = "published"
    """Images as rendered by dm_control (published), or without shadows, reflections and
    antialiasing (fast): many times faster, but scores are not comparable with published ones."""


class Suite(Family):
    """The tasks of the suite; runs count frames (control steps)."""

    prefix = PREFIX
    named = (f"{PREFIX}DOMAIN_TASK",)
    unit = "frames"
    agent = "drqv2"
    observations = ("state", "pixels")
    eval_episodes = 10
    shortest_episode = 10
    sections = {"suite": SuiteSettings}  # noqa: RUF012 (declared by Family)

    def tasks(self) -> tuple[str, ...]:
        return tuple(PREFIX + name for name in NAMES)

    def preset(
        self, name: str, agent: str, observation: str | None, task: str, reward: str | None = None
    ) -> Overrides:
        require_preset(name, agent, task, paper="drqv2", small="drqv2")
        observation = observation or ("state" if name == "cpu" else "pixels")
        pixels = observation == "pixels"
        chosen: dict[str, Any] = {
            "observation": observation,
            "reward": OWN,
            "steps": FRAMES.get(observation, FRAMES["state"]),
        }
        chosen |= agent_class(agent).small(pixels=pixels)
        if agent != "drqv2":
            return chosen
        if pixels and name != "small":
            chosen |= replay_bonuses(PUBLISHED_BONUSES)
        if name == "paper":
            # The released code uses the encoder's features as inputs of the bonus.
            bonuses = {key: chosen[key] | dict(its) for key, its in PUBLISHED_BONUSES.items()}
            bonuses["mimex"] |= {"padding": "zeros", "size": RELEASED}
            agent_settings = _graded(replace(MIMEX, features="encoder"), task)
            return chosen | bonuses | {"drqv2": agent_settings, "scale": PUBLISHED_SCALE}
        if name == "small":
            if not pixels:
                raise ValueError(
                    "--preset is 'small', which needs images: use --observation pixels, or "
                    "--preset cpu"
                )
            return {**chosen, **SMALL_IMAGES}
        return chosen | {"drqv2": _published(task)} if pixels else chosen

    def check(self, config: TrainConfig) -> None:
        super().check(config)
        choose("--suite.quality", config.suite.quality, QUALITIES)

    def make(
        self, config: TrainConfig, num_envs: int, render_mode: str | None
    ) -> VectorEnv[Any, Any, Any]:
        return gymnasium.make_vec(
            config.task,
            num_envs=num_envs,
            render_mode=render_mode,
            observation=config.observation,
            threads=config.threads or available_cores(),
            **vars(config.suite),
        )


def _graded(agent: DrQv2Settings, task: str) -> DrQv2Settings:
    return replace(agent, std_steps=NOISE_STEPS.get(task.removeprefix(PREFIX), agent.std_steps))


def _published(task: str) -> DrQv2Settings:
    domain = task.removeprefix(PREFIX).partition("_")[0]
    return replace(_graded(PUBLISHED, task), **EXCEPTIONS.get(domain, {}))


DMC = Suite()
