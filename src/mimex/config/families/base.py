"""The interface of a task family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium.vector import VectorEnv

from mimex.envs.nearest import choose

if TYPE_CHECKING:
    from mimex.config.run import TrainConfig

OWN = "task"
"""Name of the reward, or the observation, of tasks that have only one."""

Overrides = Mapping[str, Any]
"""Settings of a run by name. For a section, a mapping changes some settings, and an object replaces
the section."""


class Family(ABC):
    """A task family: its environments, settings and presets."""

    prefix: ClassVar[str]  # of the tasks' names
    named: ClassVar[tuple[str, ...]]  # the tasks, as listed in errors
    unit: ClassVar[str] = "steps"  # of --steps; or "frames"
    agent: ClassVar[str] = "ppo"  # default algorithm
    rewards: ClassVar[tuple[str, ...]] = (OWN,)
    observations: ClassVar[tuple[str, ...]] = (OWN,)
    eval_episodes: ClassVar[int] = 256  # default of `mimex eval`
    shortest_episode: ClassVar[int] = 1  # lower bound of the mean, for the replay buffer's size
    sections: ClassVar[Mapping[str, type[Any]]] = {}  # setting classes by section name

    @abstractmethod
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""

    def has(self, task: str) -> bool:
        """Whether a task exists; raises an error if only a package is missing."""
        return task in self.tasks()

    @abstractmethod
    def preset(
        self, name: str, agent: str, observation: str | None, task: str, reward: str | None = None
    ) -> Overrides:
        """Returns the defaults of a preset, by default for its own observation and reward."""

    def check(self, config: TrainConfig) -> None:
        """Raises an error that names the first invalid setting."""
        if config.curriculum and self.rewards == (OWN,):
            raise ValueError(
                "--curriculum needs a task whose reward can be changed: one of PixMC-Sparse, not "
                f"{config.task}"
            )
        for stage in config.curriculum:
            choose("--curriculum", stage, self.rewards)
        if self.rewards == (OWN,) and config.reward != OWN:
            raise ValueError(
                f"--reward is {config.reward!r}, but {config.task} has its own reward: leave it out"
            )
        choose("--reward", config.reward, self.rewards)
        choose("--observation", config.observation, self.observations)

    def modules(self, config: TrainConfig) -> tuple[str, ...]:
        """Names of external modules that the settings import."""
        return ()

    def kind(self, config: TrainConfig) -> str:
        """Distinguishes runs on the same task in titles and folder names."""
        return config.observation

    @abstractmethod
    def make(
        self, config: TrainConfig, num_envs: int, render_mode: str | None
    ) -> VectorEnv[Any, Any, Any]:
        """Creates environments that reset in the same step."""


def require_preset(name: str, agent: str, task: str, *, paper: str = "", small: str = "") -> None:
    """Raises an error if the preset does not support the agent.

    ``paper`` and ``small`` are the algorithms with presets of these names, if any.
    """
    only = {"paper": paper, "small": small}.get(name, agent)
    if agent != only:
        other = f", only {only}" if only else ""
        raise ValueError(
            f"--preset is {name!r}, which does not support {agent} on {task}{other}: use --preset "
            "cpu"
        )


def merged(settings: Any, overrides: Overrides) -> Any:
    """Returns settings with overrides applied."""
    changed = {
        name: replace(getattr(settings, name), **value) if isinstance(value, Mapping) else value
        for name, value in overrides.items()
    }
    return replace(settings, **changed)
