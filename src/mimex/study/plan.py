"""A study's plan: which runs of `mimex train` answer a question, as data."""

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

MOST_RUNS = 100_000
"""Of one study."""

FIGURES = ("curves", "ablation", "bars", "difficulty")

RESERVED = ("task", "seed", "out", "threads")
"""Settings that a study gives each run by itself."""

REQUESTS = ("cluster.cpus", "cluster.gpus")
"""What a run asks a cluster for, among the settings of a plan: no settings of the run."""


@dataclass(frozen=True)
class Scale:
    """How much a plan is given: a budget, and what goes with it."""

    about: str
    """Why these budgets, and what they cost."""
    settings: Settings
    """Of every run."""
    tasks: Mapping[str, Settings] = field(default_factory=dict)
    """Of the runs of single tasks, over those of every run."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    name: str
    """Of its folder, unlike any other's in the study."""
    task: str
    seed: int
    labels: Mapping[str, str]
    """What was chosen on each axis."""
    settings: Settings
    """All that differs from `mimex train`'s defaults, ``steps`` and ``seed`` included."""
    cpus: int | None = None
    """Cores that it asks a cluster for, and works on; None for those of all runs."""
    gpus: float = 0.0
    """GPUs that it asks a cluster for, or a share of one."""

    @property
    def steps(self) -> int:
        """The budget."""
        return int(self.settings["steps"])

    @property
    def arguments(self) -> list[str]:
        """What follows `mimex train` on a command line."""
        return [self.task, *flags(self.settings)]

    def config(self) -> TrainConfig:
        """The settings that the run will have, all of them.

        Raises:
            ValueError: With the error that would end the run at once, and the run's name.
        """
        said = io.StringIO()
        try:
            with redirect_stderr(said), redirect_stdout(said):
                return parse(self.arguments).checked()
        except ValueError as error:
            raise ValueError(f"the run {self.name} cannot be made: {error}") from error
        except SystemExit as error:  # how tyro refuses, having printed a box of words
            lines = [line.strip() for line in said.getvalue().splitlines()]
            words = "; ".join([line for line in lines if line.strip("- ")][1:4])
            given = ", ".join(self.settings)
            raise ValueError(f"the run {self.name} cannot be made with {given}: {words}") from error


@dataclass(frozen=True)
class Plan:
    """A question, and the runs that answer it: all choices on all axes, for tasks and seeds."""

    name: str
    tasks: tuple[str, ...]
    axes: Mapping[str, Mapping[str, Settings]]
    """By axis, then by label: the settings that this choice means."""
    scales: Mapping[str, Scale]
    about: str = ""
    """What it asks."""
    settings: Settings = field(default_factory=dict)
    """Of every run, whatever the scale."""
    seeds: int = 7
    """How many."""
    first_seed: int = 0
    """The others follow it. A search for settings has seeds of its own, so that what is reported
    with the settings found there comes from fresh ones."""
    figure: str = "curves"
    """What the study is drawn as: one panel a task ("curves"), one panel a task with labels in
    their order ("ablation"), final scores ("bars"), or these and a map ("difficulty")."""
    metric: str = "eval/success"
    """What is compared."""

    def __post_init__(self) -> None:
        choose("figure", self.figure, FIGURES)
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
        for scale, given in self.scales.items():
            lacking = [t for t in self.tasks if "steps" not in {**given.settings, **_of(given, t)}]
            if lacking:
                raise ValueError(
                    f"the scale {scale!r} of the plan {self.name!r} gives no budget to "
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
        """All runs, the first seed of everything first: a study cut short can be compared.

        Args:
            scale: One of the plan's.
            tasks: Some of the plan's; all if left out.
            only: Some of the labels on its axes; all of an axis of which none is named.
            seeds: How many; by default as many as the plan says.
            settings: Of every run, over everything that the plan says.
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
        if total > MOST_RUNS:
            raise ValueError(
                f"--seeds is {str(seeds)[:40]}, which makes more than {MOST_RUNS:,} runs, but a "
                f"study has at most {MOST_RUNS:,}: use fewer seeds, tasks or choices"
            )
        runs = []
        numbers = range(self.first_seed, self.first_seed + seeds)
        for seed, task, labels in product(numbers, tasks, product(*axes)):
            chosen = dict(zip(self.axes, labels, strict=True))
            layers = [self.settings, given.settings, _of(given, task)]
            layers += [self.axes[axis][label] for axis, label in chosen.items()]
            layers += [settings or {}]
            merged = {name: value for layer in layers for name, value in layer.items()}
            _require_not_reserved(self.name, merged)
            cpus, gpus = _requests(merged)
            merged["seed"] = seed
            name = _slug("-".join([self._short(task), *labels, str(seed)]))
            runs.append(PlannedRun(name, task, seed, chosen, merged, cpus, gpus))
        _require_different_names(runs)
        return runs

    def _short(self, task: str) -> str:
        """A task's name without what is before a slash, unless another task is called the same."""
        last = task.split("/")[-1]
        alike = [other for other in self.tasks if other.split("/")[-1] == last]
        return last if len(alike) == 1 else task

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of what JSON and TOML can say."""
        return asdict(self) | {"tasks": list(self.tasks)}


def flags(settings: Settings) -> list[str]:
    """Settings as a command line says them."""
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


def _of(scale: Scale, task: str) -> Settings:
    return scale.tasks.get(task, {})


def _requests(settings: dict[str, Any]) -> tuple[int | None, float]:
    """Takes what a run asks a cluster for out of its settings: cores, and GPUs."""
    for name in settings:
        if name.startswith("cluster."):
            choose("a request", name, REQUESTS)
    cpus, gpus = (settings.pop(name, None) for name in REQUESTS)
    if cpus is not None and (type(cpus) is not int or cpus < 1):
        raise ValueError(f"cluster.cpus is {cpus!r}, but must be a whole number, 1 or more")
    if gpus is not None and (
        isinstance(gpus, bool) or not isinstance(gpus, int | float) or gpus < 0
    ):
        raise ValueError(f"cluster.gpus is {gpus!r}, but must be a number, 0 or more")
    return cpus, float(gpus or 0)


def _slug(text: str) -> str:
    """A folder's name that says the same: "time 70 %" becomes "time-70"."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def _require_not_reserved(plan: str, settings: Settings) -> None:
    for name, value in settings.items():
        words = value if isinstance(value, list | tuple) else [value]
        if not re.fullmatch(r"[\w.]+", name) or any(str(word).startswith("--") for word in words):
            raise ValueError(
                f"the plan {plan!r} sets {name} to {value!r}, of which a part would be read as "
                "another setting: names have letters, digits, _ and dots, and values no dashes "
                "at their beginning."
            )
    for name in RESERVED:
        if name in settings:
            raise ValueError(
                f"the plan {plan!r} sets {name} to {settings[name]!r}, but a study gives "
                f"{', '.join(RESERVED)} to each run by itself: leave it out."
            )


def _require_different_names(runs: Sequence[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        if run.name in seen:
            raise ValueError(
                f"two runs would share the folder {run.name}: {dict(seen[run.name].labels)} and "
                f"{dict(run.labels)}. Give the choices labels that differ in letters or digits."
            )
        seen[run.name] = run
