"""What training has to know of a family of tasks."""

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
"""The reward, or the observation, of tasks that have but one: their own."""

Overrides = Mapping[str, Any]
"""Settings of a run by name; of a section, a mapping changes some and an object takes its place."""


class Family(ABC):
    """A family of tasks: how its environments are made, and what may be chosen about them.

    Attributes:
        prefix: Of its tasks' names.
        named: Its tasks, as an error lists what there is.
        unit: What a run of it counts: "steps" or "frames".
        agent: The algorithm unless another one is chosen.
        rewards: Names of its rewards.
        observations: Names of its observations.
        eval_episodes: Of `mimex eval`.
        shortest_episode: Steps that episodes have at least on average, unless a limit is lower.
        sections: Settings of its own, by the name of their section.
    """

    prefix: ClassVar[str]
    named: ClassVar[tuple[str, ...]]
    unit: ClassVar[str] = "steps"
    agent: ClassVar[str] = "ppo"
    rewards: ClassVar[tuple[str, ...]] = (OWN,)
    observations: ClassVar[tuple[str, ...]] = (OWN,)
    eval_episodes: ClassVar[int] = 256
    shortest_episode: ClassVar[int] = 1
    sections: ClassVar[Mapping[str, type[Any]]] = {}

    @abstractmethod
    def tasks(self) -> tuple[str, ...]:
        """The names of its tasks."""

    def has(self, task: str) -> bool:
        """Whether there is such a task; an error where one only lacks a package."""
        return task in self.tasks()

    @abstractmethod
    def preset(
        self, name: str, agent: str, observation: str | None, task: str, reward: str | None = None
    ) -> Overrides:
        """The defaults of a preset.

        Args:
            name: One of ``PRESETS``.
            agent: The algorithm.
            observation: What it sees; None for the preset's own.
            task: The task.
            reward: The reward; None for the preset's own.
        """

    def check(self, config: TrainConfig) -> None:
        """Raises an error that names the first setting that the family cannot take."""
        if config.curriculum and self.rewards == (OWN,):
            raise ValueError(
                "--curriculum needs a task whose reward can be changed: one of PixMC-Sparse, not "
                f"{config.task}"
            )
        for stage in config.curriculum:
            choose("--curriculum", stage, self.rewards)
        if self.rewards == (OWN,) and config.reward != OWN:
            raise ValueError(
                f"--reward is {config.reward!r}, but {config.task} has a reward of its own: leave "
                "--reward out"
            )
        choose("--reward", config.reward, self.rewards)
        choose("--observation", config.observation, self.observations)

    def modules(self, config: TrainConfig) -> tuple[str, ...]:
        """Names of the modules outside of mimex that the settings ask to import."""
        return ()

    def kind(self, config: TrainConfig) -> str:
        """What tells runs on one task apart, in a word of a title and a folder's name."""
        return config.observation

    @abstractmethod
    def make(
        self, config: TrainConfig, num_envs: int, render_mode: str | None
    ) -> VectorEnv[Any, Any, Any]:
        """Environments that reset in the same step."""


def require_preset(name: str, agent: str, task: str, *, paper: str = "", small: str = "") -> None:
    """Raises an error if there is no such preset.

    Args:
        name: The preset.
        agent: The algorithm that asks for it.
        task: The task.
        paper: The algorithm that the family has published numbers for; empty for none.
        small: The one that has a smaller preset than the cpu's; empty for none.
    """
    only = {"paper": paper, "small": small}.get(name, agent)
    if agent != only:
        other = f", only {only}" if only else ""
        raise ValueError(
            f"--preset is {name!r}, which has no {agent} on {task}{other}: use --preset cpu"
        )


def merged(settings: Any, overrides: Overrides) -> Any:
    """Settings with some of them changed."""
    changed = {
        name: replace(getattr(settings, name), **value) if isinstance(value, Mapping) else value
        for name, value in overrides.items()
    }
    return replace(settings, **changed)
