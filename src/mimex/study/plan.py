"""A study's plan: the `mimex train` runs that answer a question, as data."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from mimex.config import TrainConfig, parse
from mimex.envs.nearest import choose

Settings = Mapping[str, Any]
"""Settings of `mimex train` by dotted name, such as ``{"mimex.mask_ratio": 0.7}``."""

MAX_RUNS = 100_000
"""Maximum number of runs in a study."""

RESERVED = ("task", "seed", "out", "threads")
"""Settings that a study sets for each run."""


@dataclass(frozen=True)
class Scale:
    """A compute budget and the settings that go with it."""

    about: str
    settings: Settings
    """Settings of every run."""
    tasks: Mapping[str, Settings] = field(default_factory=dict)
    """Settings by task, which override those of every run."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    name: str
    """Name of the run's folder, unique in the study."""
    task: str
    seed: int
    labels: Mapping[str, str]
    """The label chosen on each axis."""
    settings: Settings
    """Everything that differs from the defaults of `mimex train`, with ``steps`` and ``seed``."""

    @property
    def steps(self) -> int:
        """Step budget."""
        return int(self.settings["steps"])

    @property
    def arguments(self) -> list[str]:
        """Command-line arguments of `mimex train`."""
        return [self.task, *flags(self.settings)]

    def config(self) -> TrainConfig:
        """Parses and checks the run's settings.

        Raises:
            ValueError: If `mimex train` would reject them.
        """
        output = io.StringIO()
        try:
            with redirect_stderr(output), redirect_stdout(output):
                return parse(self.arguments).checked()
        except ValueError as error:
            raise ValueError(f"the run {self.name} is invalid: {error}") from error
        except SystemExit as error:  # tyro prints its error in a box, and exits
            lines = [line.strip() for line in output.getvalue().splitlines()]
            reason = "; ".join([line for line in lines if line.strip("- ")][1:4])
            names = ", ".join(self.settings)
            raise ValueError(f"the run {self.name} is invalid with {names}: {reason}") from error


@dataclass(frozen=True)
class Plan:
    """A question and the runs that answer it: every combination of axes, tasks and seeds."""

    name: str
    tasks: tuple[str, ...]
    axes: Mapping[str, Mapping[str, Settings]]
    """By axis, then by label: the settings of this choice."""
    scales: Mapping[str, Scale]
    about: str = ""
    """The question."""
    settings: Settings = field(default_factory=dict)
    """Settings of every run at every scale."""
    seeds: int = 7
    """Number of seeds."""
    first_seed: int = 0
    """The first of consecutive seeds. A hyperparameter search uses other seeds than the runs that
    are reported with its result."""
    metric: str = "eval/success"
    """The metric that methods are compared by."""

    def __post_init__(self) -> None:
        if self.first_seed < 0:
            raise ValueError(
                f"first_seed of the plan {self.name!r} is {self.first_seed}, but must be 0 or more."
            )
        for name in ("tasks", "axes", "scales"):
            if not getattr(self, name):
                raise ValueError(f"the plan {self.name!r} has no {name}; give at least one.")
        for axis, choices in self.axes.items():
            if not choices:
                raise ValueError(f"the axis {axis!r} of the plan {self.name!r} has no choices.")
        for name, scale in self.scales.items():
            lacking = [
                task
                for task in self.tasks
                if "steps" not in {**scale.settings, **scale.tasks.get(task, {})}
            ]
            if lacking:
                raise ValueError(
                    f"the scale {name!r} of the plan {self.name!r} gives no budget to "
                    f"{', '.join(lacking)}: set steps for the scale or for the task."
                )

    def runs(
        self,
        scale: str,
        *,
        tasks: Sequence[str] = (),
        only: Sequence[str] = (),
        seeds: int | None = None,
        settings: Settings | None = None,
    ) -> list[PlannedRun]:
        """Returns all runs, ordered by seed, so that a study cut short can still be compared.

        Args:
            scale: Name of the scale.
            tasks: A subset of the plan's tasks; all by default.
            only: A subset of the labels; an axis with none of them keeps all of its labels.
            seeds: Number of seeds; as in the plan by default.
            settings: Settings of every run, which override the plan's.
        """
        given = self.scales[choose("--scale", scale, tuple(self.scales))]
        tasks = [choose("--tasks", task, self.tasks) for task in tasks] or self.tasks
        every = tuple(label for axis in self.axes.values() for label in axis)
        wanted = {choose("--only", label, every) for label in only}
        axes = [[*filter(wanted.__contains__, axis)] or [*axis] for axis in self.axes.values()]
        seeds = self.seeds if seeds is None else seeds
        if seeds < 1:
            raise ValueError(f"--seeds is {seeds}, but must be at least 1")
        total = seeds * math.prod(map(len, (tasks, *axes)))
        if total > MAX_RUNS:
            raise ValueError(
                f"--seeds is {str(seeds)[:40]}, which makes more than {MAX_RUNS:,} runs: use fewer "
                "seeds, tasks or choices"
            )
        runs: dict[str, PlannedRun] = {}
        numbers = range(self.first_seed, self.first_seed + seeds)
        for seed, task, labels in product(numbers, tasks, product(*axes)):
            chosen = dict(zip(self.axes, labels, strict=True))
            layers = [self.settings, given.settings, given.tasks.get(task, {})]
            layers += [self.axes[axis][label] for axis, label in chosen.items()]
            layers += [settings or {}]
            merged = {name: value for layer in layers for name, value in layer.items()}
            self._require_not_reserved(merged)
            name = _slug("-".join([self._short(task), *labels, str(seed)]))
            if name in runs:
                raise ValueError(
                    f"two runs would share the folder {name}: {dict(runs[name].labels)} and "
                    f"{chosen}. Use labels that differ in letters or digits."
                )
            runs[name] = PlannedRun(name, task, seed, chosen, merged | {"seed": seed})
        return list(runs.values())

    def _short(self, task: str) -> str:
        """The part of a task's name after its last slash, unless that is ambiguous."""
        last = task.split("/")[-1]
        same = [other for other in self.tasks if other.split("/")[-1] == last]
        return last if len(same) == 1 else task

    def _require_not_reserved(self, settings: Settings) -> None:
        for name, value in settings.items():
            words = value if isinstance(value, list | tuple) else [value]
            odd_name = not re.fullmatch(r"[\w.]+", name)
            if odd_name or any(str(word).startswith("--") for word in words):
                raise ValueError(
                    f"the plan {self.name!r} sets {name} to {value!r}, which `mimex train` would "
                    "read as another setting: names have letters, digits, _ and dots, and values "
                    "do not begin with dashes."
                )
        for name in RESERVED:
            if name in settings:
                raise ValueError(
                    f"the plan {self.name!r} sets {name} to {settings[name]!r}, but a study sets "
                    f"{', '.join(RESERVED)} for each run: leave it out."
                )

    def to_dict(self) -> dict[str, Any]:
        """Returns nested dicts of JSON values."""
        return asdict(self) | {"tasks": list(self.tasks)}


def flags(settings: Settings) -> list[str]:
    """Returns settings as command-line flags."""
    words: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            group, dot, last = flag.rpartition(".")
            words.append(f"--{group}{dot}{'' if value else 'no-'}{last}")
        else:
            several = isinstance(value, list | tuple)
            words += [f"--{flag}", *map(str, value if several else [value])]
    return words


def _slug(text: str) -> str:
    """Returns a folder name: "time 70 %" becomes "time-70"."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")
