"""A study's plan: the `mimex train` runs that answer a question, and its TOML file."""

from __future__ import annotations

import io
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from mimex.config import TrainConfig, parse
from mimex.config.json import from_json
from mimex.envs.nearest import choose
from mimex.files import replacing

Settings = Mapping[str, Any]
"""Settings of `mimex train` by dotted name, such as ``{"mimex.mask_ratio": 0.7}``."""

PLANS = {path.stem: path for path in sorted(Path(__file__).with_name("plans").glob("*.toml"))}
"""Files of the built-in plans by name."""

MAX_RUNS = 100_000
"""Maximum number of runs in a study."""

RESERVED = ("task", "seed", "out", "threads")
"""Settings that a study sets for each run."""


@dataclass(frozen=True)
class Scale:
    """A compute budget and the settings that go with it."""

    about: str = ""
    settings: Settings = field(default_factory=dict)
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
                raise ValueError(f"the plan {self.name!r} has no {name}; add at least one.")
        for axis, choices in self.axes.items():
            if not choices:
                raise ValueError(f"the axis {axis!r} of the plan {self.name!r} has no choices.")
        for name, scale in self.scales.items():
            for task in scale.tasks:
                choose(f"a task of the scale {name!r}", task, self.tasks)
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
        budget = self.scales[choose("--scale", scale, tuple(self.scales))]
        tasks = [choose("--tasks", task, self.tasks) for task in tasks] or self.tasks
        all_labels = tuple(label for axis in self.axes.values() for label in axis)
        wanted = {choose("--only", label, all_labels) for label in only}
        axes = [[*filter(wanted.__contains__, axis)] or [*axis] for axis in self.axes.values()]
        seeds = self.seeds if seeds is None else seeds
        if seeds < 1:
            raise ValueError(f"--seeds is {seeds}, but must be at least 1")
        if seeds * math.prod(map(len, (tasks, *axes))) > MAX_RUNS:
            raise ValueError(
                f"--seeds is {str(seeds)[:40]}, which makes more than {MAX_RUNS:,} runs: use fewer "
                "seeds, tasks or choices"
            )
        runs: dict[str, PlannedRun] = {}
        numbers = range(self.first_seed, self.first_seed + seeds)
        for seed, task, labels in product(numbers, tasks, product(*axes)):
            chosen = dict(zip(self.axes, labels, strict=True))
            layers = [self.settings, budget.settings, budget.tasks.get(task, {})]
            layers += [self.axes[axis][label] for axis, label in chosen.items()]
            layers += [settings or {}]
            merged = {name: value for layer in layers for name, value in layer.items()}
            self._require_valid(merged)
            # A folder name: "time 70 %" becomes "time-70".
            name = "-".join([self._short(task), *labels, str(seed)])
            name = re.sub(r"[^\w.]+", "-", name).strip("-")
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

    def _require_valid(self, settings: Settings) -> None:
        for name, value in settings.items():
            if name in RESERVED:
                raise ValueError(
                    f"the plan {self.name!r} sets {name} to {value!r}, but a study sets "
                    f"{', '.join(RESERVED)} for each run: leave it out."
                )
            words = value if isinstance(value, list | tuple) else [value]
            invalid = not re.fullmatch(r"[\w.]+", name)
            if invalid or any(str(word).startswith("--") for word in words):
                raise ValueError(
                    f"the plan {self.name!r} sets {name} to {value!r}, which `mimex train` would "
                    "read as another setting: names have letters, digits, _ and dots, and values "
                    "do not begin with dashes."
                )


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


def find_plan(name: str) -> Plan:
    """Returns a built-in plan by its name, or a user's plan by its file."""
    path = Path(name)
    if path.suffix != ".toml":
        return read_plan(PLANS[choose("the plan", name, tuple(PLANS))])
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; mimex study init {path} writes it.")
    return read_plan(path)


def read_plan(path: Path) -> Plan:
    """Reads the plan of a TOML file, named after the file.

    Raises:
        ValueError: If the file is not TOML or not a plan; the message names the field.
    """
    try:
        data = {"name": path.stem} | tomllib.loads(path.read_text())
        read: Plan = from_json(Plan, data, "the plan")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply for a plan") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    scales = {
        name: Scale(scale.about, _flat(scale.settings), _flat_each(scale.tasks))
        for name, scale in read.scales.items()
    }
    axes = {axis: _flat_each(choices) for axis, choices in read.axes.items()}
    return replace(read, settings=_flat(read.settings), axes=axes, scales=scales)


def copy_plan(name: str, path: Path) -> None:
    """Copies the file of a built-in plan.

    Raises:
        FileExistsError: If the file exists.
    """
    text = PLANS[choose("the plan", name, tuple(PLANS))].read_bytes()
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or choose another name.")
    with replacing(path) as aside:
        aside.write_bytes(text)


def _flat_each(settings: Mapping[str, Settings]) -> dict[str, Settings]:
    return {name: _flat(chosen) for name, chosen in settings.items()}


def _flat(settings: Settings, prefix: str = "") -> Settings:
    """Returns settings by dotted name: TOML reads a dotted key as nested tables."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return {name.replace("-", "_"): value for name, value in flat.items()}
