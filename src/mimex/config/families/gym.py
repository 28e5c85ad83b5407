"""Gymnasium environments by their id, such as ``gym/CartPole-v1``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.error import DependencyNotInstalled
from gymnasium.error import Error as GymnasiumError
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from mimex.agents import agent_class
from mimex.config.families.base import OWN, Family, Overrides, require_preset

if TYPE_CHECKING:
    from mimex.config.run import TrainConfig

_ROBOTICS = "AdroitHand AntMaze Fetch FrankaKitchen HandManipulate HandReach PointMaze"
PACKAGES = {
    "ALE/": ("ale_py", "gymnasium[atari]"),
    "BabyAI-": ("minigrid", "minigrid"),
    "Meta-World/": ("metaworld", "metaworld"),
    "MiniGrid-": ("minigrid", "minigrid"),
} | dict.fromkeys(_ROBOTICS.split(), ("gymnasium_robotics", "gymnasium-robotics"))
"""Module and pip package that register environments, by the prefix of their id."""

STEPS = 300_000
"""Default length of a run."""


@dataclass(frozen=True)
class GymSettings:
    """Settings of Gymnasium environments."""

    episode_steps: int | None = None
    """Maximum steps of an episode; None for the environment's own limit."""
    arguments: str = "{}"
    """Keyword arguments of the environment, as JSON: '{"size": 20}'."""

    def keywords(self) -> dict[str, Any]:
        """Parses ``arguments``."""
        try:
            found = json.loads(self.arguments)
        except ValueError as error:
            raise ValueError(f"--gym.arguments is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(
                f"--gym.arguments is {self.arguments}, but must be a JSON object such as "
                '{"size": 20}'
            )
        return found


class Gym(Family):
    """Environments of Gymnasium, other packages, and your own modules."""

    prefix = "gym/"
    named = ("gym/ID", "gym/MODULE:ID")
    sections = {"gym": GymSettings}  # noqa: RUF012 (declared by Family)

    def tasks(self) -> tuple[str, ...]:
        others = ("mimex/", "dmc/", "phys2d/", "tabular/", "GymV")
        names = (name for name in gymnasium.registry if not name.startswith(others))
        return tuple(self.prefix + name for name in names)

    def has(self, task: str) -> bool:
        try:
            gymnasium.spec(_registered(task.removeprefix(self.prefix)))
        except GymnasiumError:
            return False
        return True

    def preset(
        self, name: str, agent: str, observation: str | None, task: str, reward: str | None = None
    ) -> Overrides:
        require_preset(name, agent, task)
        chosen: Overrides = {"observation": observation or OWN, "reward": OWN, "steps": STEPS}
        return {**chosen, **agent_class(agent).small(pixels=False)}

    def check(self, config: TrainConfig) -> None:
        super().check(config)
        steps = config.gym.episode_steps
        if steps is not None and steps < 1:
            raise ValueError(f"--gym.episode-steps is {steps}, but must be at least 1")
        config.gym.keywords()

    def modules(self, config: TrainConfig) -> tuple[str, ...]:
        # Wrappers such as GymV26Environment-v0 take MODULE:ID as an argument.
        ids = (config.task.removeprefix(self.prefix), *config.gym.keywords().values())
        named = (each.rpartition(":")[0] for each in ids if isinstance(each, str))
        return tuple(filter(None, named))

    def kind(self, config: TrainConfig) -> str:
        return config.agent

    def make(
        self, config: TrainConfig, num_envs: int, render_mode: str | None
    ) -> VectorEnv[Any, Any, Any]:
        name = _registered(config.task.removeprefix(self.prefix))
        spec = gymnasium.spec(name)
        limit = config.gym.episode_steps or spec.max_episode_steps
        keywords = config.gym.keywords()
        if render_mode is not None:
            keywords["render_mode"] = render_mode
        try:
            if spec.entry_point is None:  # only a vector environment, with its own time limit
                return _same_step(gymnasium.make_vec(spec.id, num_envs, **keywords), config.task)
            if limit is None:
                raise ValueError(
                    f"{config.task} has no time limit: set one with --gym.episode-steps"
                )
            one = partial(gymnasium.make, spec.id, max_episode_steps=limit, **keywords)
            return SyncVectorEnv([one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        except TypeError as error:
            if render_mode is not None and "render_mode" in str(error):
                raise ValueError(f"{config.task} has no render_mode") from error
            raise ValueError(
                f"{config.task} does not accept --gym.arguments {config.gym.arguments}: {error}"
            ) from error
        except DependencyNotInstalled as error:
            raise ValueError(f"{config.task} needs a package: {error}") from error
        except GymnasiumError as error:
            raise ValueError(f"{config.task} cannot be created: {error}") from error


def _same_step(env: VectorEnv[Any, Any, Any], task: str) -> VectorEnv[Any, Any, Any]:
    """Raises an error unless the environments report that they reset in the same step."""
    mode = env.metadata.get("autoreset_mode")
    if mode in (AutoresetMode.SAME_STEP, AutoresetMode.SAME_STEP.value):
        return env
    env.close()
    found = "not in its metadata" if mode is None else getattr(mode, "name", repr(mode))
    raise ValueError(
        f"{task} has only vector environments, whose autoreset_mode is {found}, but training needs "
        "SAME_STEP (with final_obs): register the single environment (entry_point) too, or use "
        "SAME_STEP"
    )


def _registered(name: str) -> str:
    """Imports the module that registers an id; returns the id without the module."""
    named, _, name = name.rpartition(":")
    if named:
        here = os.getcwd()
        if not {"", here} & set(sys.path):  # the console script does not add it
            sys.path.append(here)
        try:
            importlib.import_module(named)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"gym/{named}:{name} needs the module {error.name}: install it, run mimex from its "
                "folder, or add that folder to PYTHONPATH"
            ) from error
        except Exception as error:  # whatever a user's module raises
            raise ValueError(
                f"gym/{named}:{name} needs the module {named}, which cannot be imported "
                f"({type(error).__name__}: {error})"
            ) from error
    for prefix, (module, package) in PACKAGES.items():
        if name.startswith(prefix):
            if importlib.util.find_spec(module) is None:
                raise ValueError(f"gym/{name} needs {module}: pip install '{package}'")
            gymnasium.register_envs(importlib.import_module(module))
    return name


GYM = Gym()
