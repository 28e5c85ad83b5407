"""`mimex study`: whole experiments, from a plan to figures and a report."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from mimex.agents.factory import make_bonus, make_scale
from mimex.config import TrainConfig
from mimex.envs.nearest import choose
from mimex.files import printable
from mimex.nn.parallel import available_cores
from mimex.study.backends import Backend, LocalBackend
from mimex.study.folder import StudyFolder
from mimex.study.plan import Plan, PlannedRun
from mimex.study.plan_file import PLANS, copy_plan, find_plan
from mimex.study.sweep import sweep
from mimex.study.table import StudyTable
from mimex.track.display import lasting_output
from mimex.train.folder import RunFolder
from mimex.train.signals import StopRequest

BACKENDS = ("local", "ray")


@dataclass(frozen=True)
class Selection:
    """Which runs."""

    plan: tyro.conf.Positional[str]
    """A plan's name (mimex study list), or a TOML file (mimex study init)."""
    scale: str = "cpu"
    """How much the plan is given: cpu, paper, or what your own plan says."""
    seeds: int | None = None
    """How many seeds: 0, 1, 2, ...; by default as many as the plan says."""
    tasks: tuple[str, ...] = ()
    """Some of the plan's tasks; all if left out."""
    only: tuple[str, ...] = ()
    """Some of what it compares, by label, such as none rnd; all if left out."""
    set: tuple[str, ...] = ()
    """Settings of every run, over the plan's, as NAME=VALUE: steps=3000000 scale.beta=0.01."""

    def runs(self) -> tuple[Plan, list[PlannedRun]]:
        """The plan and its runs."""
        plan = find_plan(self.plan)
        settings = dict(map(_setting, self.set))
        runs = plan.runs(
            self.scale, tasks=self.tasks, only=self.only, seeds=self.seeds, settings=settings
        )
        return plan, runs


@dataclass(frozen=True)
class RunConfig(Selection):
    """Make the runs of a plan, then figures and a report; the same command continues."""

    out: Path | None = None
    """The study's folder; by default studies/PLAN-SCALE."""
    jobs: int | None = None
    """Runs side by side; by default one a core here, and as many as fit on a cluster."""
    threads: int | None = None
    """Threads of each run; by default the cores divided by the jobs here, and 1 on a cluster."""
    backend: Annotated[str, tyro.conf.arg(metavar="{local,ray}")] = "local"
    """Processes of this machine, or tasks of a Ray cluster that shares the study's folder."""
    address: str = "auto"
    """Of the Ray cluster; auto for the one that this machine belongs to."""
    report: bool = True
    """Write figures/ and report.html at the end."""


@dataclass(frozen=True)
class ShowConfig(Selection):
    """Print what a plan would run, without running it."""

    commands: bool = False
    """Print the command of every run instead."""


@dataclass(frozen=True)
class InitConfig:
    """Write a plan as a TOML file of your own to change."""

    file: tyro.conf.Positional[Path]
    """Where to, such as mine.toml."""
    like: str = "mask-ratio"
    """The plan to begin with."""


@dataclass(frozen=True)
class ListConfig:
    """List the plans that come with mimex."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and does one of four things."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: mimex study {run,show,list,init} ... (--help after each tells more)\n")
        print("\n".join(f"  {name:6}{kind.__doc__}" for name, (kind, _) in _ACTIONS.items()))
        return 0 if arguments else 2
    name = choose("what to do with a study", arguments[0], tuple(_ACTIONS))
    kind, action = _ACTIONS[name]
    return action(tyro.cli(kind, args=arguments[1:], prog=f"mimex study {name}"))


@lasting_output()
def _run(config: RunConfig) -> int:
    plan, runs = config.runs()
    for checked in _first_seed(runs):
        _require_weights(checked)
    folder = StudyFolder(config.out or Path("studies") / f"{plan.name}-{config.scale}")
    with ExitStack() as stack:
        backend, threads = _backend(config)
        stack.callback(backend.close)
        # A study is locked as a run is: by whoever writes to it, until that process ends.
        stack.enter_context(RunFolder(folder.path))
        folder.record(plan, config.scale, runs)
        jobs = min(backend.slots, len(runs))
        print(f"{len(runs)} runs -> {folder.path}, {jobs} at once, {threads} threads each")
        stop = stack.enter_context(StopRequest())
        table = stack.enter_context(StudyTable(folder, runs, plan.metric, jobs))
        ended = sweep(folder, runs, backend, threads=threads, stop=lambda: bool(stop), watch=table)
    if stop.signal is not None and ended.stopped:
        print(f"stopped by {stop.signal.name}; the same command continues")
        return 128 + stop.signal
    if config.report and ended.done:
        _write_report(folder)
    print(f"{len(ended.done)} runs done, {len(ended.failed)} failed")
    for name, reason in ended.failed.items():
        print(f"\n{name} {reason}, after two attempts; {folder.log(name)} ends with:")
        print("\n".join(f"  {line}" for line in folder.last_words(name)))
    return 1 if ended.failed else 0


def _first_seed(runs: Sequence[PlannedRun]) -> list[TrainConfig]:
    """The settings of all runs but for the seed, checked."""
    configs = []
    for run in runs:
        if run.seed == runs[0].seed:
            configs.append(run.config())
            try:
                make_bonus(configs[-1], feature_dim=8, action_dim=2)
                make_scale(configs[-1], discount=0.99)
            except ValueError as error:
                raise ValueError(f"the run {run.name} cannot be made: {error}") from error
    return configs


def _require_weights(config: TrainConfig) -> None:
    """Raises an error if the run would not find the weights that it starts from."""
    checkpoint = config.vision.checkpoint
    needed = config.observation == "pixels" and config.vision.encoder == "vit"
    if needed and (checkpoint is None or not checkpoint.exists()):
        raise ValueError(
            f"vision.checkpoint is {checkpoint}, but must be a file with the weights of the "
            "ViT: add --set vision.checkpoint=FILE, an absolute path if other machines read it"
        )


def _backend(config: RunConfig) -> tuple[Backend, int]:
    """Where to run, and the threads of each run."""
    choose("--backend", config.backend, BACKENDS)
    for name, value in (("--jobs", config.jobs), ("--threads", config.threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}, but must be at least 1")
    if config.backend == "ray":
        from mimex.study.ray_backend import RayBackend

        threads = config.threads or 1
        return RayBackend(config.address, threads, config.jobs), threads
    cores = available_cores()
    jobs = config.jobs or max(1, cores // (config.threads or 1))
    return LocalBackend(jobs), config.threads or max(1, cores // jobs)


def _write_report(folder: StudyFolder) -> None:
    from mimex.study.figures import figures_of
    from mimex.study.report import write_report

    figures_of(folder.path, folder.path / "figures")
    write_report([folder.path], folder.path / "report.html")
    print(f"figures in {folder.path / 'figures'}, report in {folder.path / 'report.html'}")


def _show(config: ShowConfig) -> int:
    plan, runs = config.runs()
    _first_seed(runs)
    if config.commands:
        lines = (shlex.join(["mimex", "train", *run.arguments]) for run in runs)
        print(printable("\n".join(lines)))
        return 0
    console = Console(markup=False)
    console.print(printable(f"{plan.name}: {plan.about}\n{plan.scales[config.scale].about}\n"))
    table = Table("task", *map(printable, plan.axes), "seeds", "steps each", box=None)
    for task in dict.fromkeys(run.task for run in runs):
        of_task = [run for run in runs if run.task == task]
        labels = [
            " | ".join(dict.fromkeys(run.labels[axis] for run in of_task)) for axis in plan.axes
        ]
        seeds = len({run.seed for run in of_task})
        table.add_row(*map(printable, (task, *labels)), str(seeds), f"{of_task[0].steps:,}")
    console.print(table)
    print(f"\n{len(runs)} runs, {sum(run.steps for run in runs):,} steps in all")
    return 0


def _list(_: ListConfig) -> int:
    table = Table("plan", "runs", "what it asks", box=None)
    for plan in map(find_plan, PLANS):
        table.add_row(plan.name, str(len(plan.runs("cpu"))), plan.about)
    Console().print(table)
    return 0


def _init(config: InitConfig) -> int:
    if config.file.suffix != ".toml":
        raise ValueError(f"the file is {config.file}, but its name must end in .toml")
    copy_plan(config.like, config.file)
    print(f"wrote {config.file}; mimex study show {config.file} tells what it would run")
    return 0


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, of which the value is read as TOML where it can be."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set has {text!r}, but wants NAME=VALUE, such as steps=3000000")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # no TOML, or none that Python can read
        read = value
    return name.replace("-", "_"), read


_ACTIONS: dict[str, tuple[type[Any], Callable[[Any], int]]] = {
    "run": (RunConfig, _run),
    "show": (ShowConfig, _show),
    "list": (ListConfig, _list),
    "init": (InitConfig, _init),
}
