"""`mimex study`: run a set of experiments, then draw figures and write a report."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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
from mimex.study.layout import Layout, choose_layout, layouts
from mimex.study.plan import PLANS, Plan, PlannedRun, copy_plan, find_plan
from mimex.study.sweep import sweep
from mimex.study.table import StudyTable
from mimex.track.display import optional_stdout
from mimex.train.folder import RunFolder
from mimex.train.signals import StopRequest

BACKENDS = ("local", "ray")


@dataclass(frozen=True)
class Selection:
    """A selection of a plan's runs."""

    plan: tyro.conf.Positional[str]
    """Name of a plan (mimex study list) or TOML file (mimex study init)."""
    scale: str = "cpu"
    """Compute budget: cpu, paper, or another scale of the plan."""
    seeds: int | None = None
    """Number of seeds; by default as in the plan."""
    tasks: tuple[str, ...] = ()
    """A subset of the plan's tasks; all by default."""
    only: tuple[str, ...] = ()
    """A subset of the plan's methods by label, such as none rnd; all by default."""
    set: tuple[str, ...] = ()
    """Settings of every run as NAME=VALUE, overriding the plan: steps=3000000 scale.beta=0.01."""

    def runs(self) -> tuple[Plan, list[PlannedRun]]:
        """Returns the plan and the selected runs."""
        plan = find_plan(self.plan)
        settings = dict(map(_setting, self.set))
        runs = plan.runs(
            self.scale, tasks=self.tasks, only=self.only, seeds=self.seeds, settings=settings
        )
        return plan, runs


@dataclass(frozen=True)
class RunConfig(Selection):
    """Run a plan, then write figures and a report. The same command resumes."""

    out: Path | None = None
    """Study folder; studies/PLAN-SCALE by default."""
    jobs: int | Literal["auto"] | None = None
    """Number of parallel runs; by default one per core, or as many as fit on the cluster. "auto"
    measures which numbers of local runs and threads are fastest."""
    threads: int | None = None
    """Threads per run; by default cores divided by jobs, or 1 on a cluster."""
    gpus: float = 0.0
    """GPUs per run on a cluster, or a fraction of one."""
    backend: Annotated[str, tyro.conf.arg(metavar="{local,ray}")] = "local"
    """Local processes, or tasks of a Ray cluster that shares the study folder."""
    address: str = "auto"
    """Address of the Ray cluster; auto for the one of this machine."""
    report: bool = True
    """Write figures/ and report.html at the end."""


@dataclass(frozen=True)
class ShowConfig(Selection):
    """Print the runs of a plan without running them."""

    commands: bool = False
    """Print the command of every run instead of a table."""


@dataclass(frozen=True)
class InitConfig:
    """Copy a built-in plan to a TOML file to edit."""

    file: tyro.conf.Positional[Path]
    """The file to write, such as mine.toml."""
    like: str = "ablations"
    """The plan to copy."""


@dataclass(frozen=True)
class ListConfig:
    """List the built-in plans."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: mimex study {run,show,list,init} ... (see --help of each)\n")
        print("\n".join(f"  {name:6}{kind.__doc__}" for name, (kind, _) in _ACTIONS.items()))
        return 0 if arguments else 2
    name = choose("the subcommand", arguments[0], tuple(_ACTIONS))
    kind, action = _ACTIONS[name]
    return action(tyro.cli(kind, args=arguments[1:], prog=f"mimex study {name}"))


@optional_stdout()
def _run(config: RunConfig) -> int:
    plan, runs = config.runs()
    for checked in _first_seed(runs):
        _require_weights(checked)
    folder = StudyFolder(config.out or Path("studies") / f"{plan.name}-{config.scale}")
    with ExitStack() as stack:
        backend, threads = _backend(config)
        stack.callback(backend.close)
        # The lock of a study is that of a run folder.
        stack.enter_context(RunFolder(folder.path))
        folder.record(plan, config.scale, runs)
        unfinished = [run for run in runs if not folder.finished(run)]
        if config.jobs == "auto" and unfinished and isinstance(backend, LocalBackend):
            options = layouts(available_cores(), len(runs), config.threads)
            backend.slots, threads = choose_layout(folder, unfinished[0], options)
        jobs = min(backend.slots, len(runs))
        print(f"{len(runs)} runs -> {folder.path}, {Layout(jobs, threads)}")
        stop = stack.enter_context(StopRequest())
        table = stack.enter_context(StudyTable(folder, runs, plan.metric, jobs))
        ended = sweep(folder, runs, backend, threads=threads, stop=lambda: bool(stop), watch=table)
    if stop.signal is not None and ended.stopped:
        print(f"stopped by {stop.signal.name}; the same command resumes")
        return 128 + stop.signal
    if config.report and ended.done:
        _write_report(folder)
    print(f"{len(ended.done)} runs done, {len(ended.failed)} failed")
    for name, reason in ended.failed.items():
        print(f"\n{name} {reason}, after two attempts; {folder.log(name)} ends with:")
        print("\n".join(f"  {line}" for line in folder.log_tail(name)))
    return 1 if ended.failed else 0


def _first_seed(runs: Sequence[PlannedRun]) -> list[TrainConfig]:
    """Returns the checked settings of all runs of the first seed."""
    configs = []
    for run in runs:
        if run.seed == runs[0].seed:
            configs.append(run.config())
            try:
                make_bonus(configs[-1], feature_dim=8, action_dim=2)
                make_scale(configs[-1], discount=0.99)
            except ValueError as error:
                raise ValueError(f"the run {run.name} is invalid: {error}") from error
    return configs


def _require_weights(config: TrainConfig) -> None:
    """Raises an error if the run needs pretrained weights that do not exist."""
    needed = config.observation == "pixels" and config.vision.encoder == "vit"
    if needed and not config.vision.weights.is_file():
        raise ValueError(
            f"there is no file {config.vision.weights} with the weights of the ViT: make one with "
            "`mimex pretrain`, and add --set vision.checkpoint=FILE, an absolute path if other "
            "machines read it"
        )


def _backend(config: RunConfig) -> tuple[Backend, int]:
    """Returns the backend and the threads per run."""
    choose("--backend", config.backend, BACKENDS)
    for name, value in (("--jobs", config.jobs), ("--threads", config.threads)):
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name} is {value}, but must be at least 1")
    if config.backend == "ray":
        if config.jobs == "auto":
            raise ValueError("--jobs is 'auto', which measures local runs: use --backend local")
        from mimex.study.ray_backend import RayBackend

        threads = config.threads or 1
        return RayBackend(config.address, threads, gpus=config.gpus, jobs=config.jobs), threads
    cores = available_cores()
    jobs = config.jobs if isinstance(config.jobs, int) else max(1, cores // (config.threads or 1))
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
    print(f"\n{len(runs)} runs, {sum(run.steps for run in runs):,} steps in total")
    return 0


def _list(_: ListConfig) -> int:
    table = Table("plan", "runs", "question", box=None)
    for plan in map(find_plan, PLANS):
        table.add_row(plan.name, str(len(plan.runs("cpu"))), plan.about)
    Console().print(table)
    return 0


def _init(config: InitConfig) -> int:
    if config.file.suffix != ".toml":
        raise ValueError(f"the file is {config.file}, but its name must end in .toml")
    copy_plan(config.like, config.file)
    print(f"wrote {config.file}; mimex study show {config.file} lists its runs")
    return 0


def _setting(text: str) -> tuple[str, Any]:
    """Parses NAME=VALUE; a value that is not TOML is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set is {text!r}, but must be NAME=VALUE, such as steps=3000000")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        read = value
    return name.replace("-", "_"), read


_ACTIONS: dict[str, tuple[type[Any], Callable[[Any], int]]] = {
    "run": (RunConfig, _run),
    "show": (ShowConfig, _show),
    "list": (ListConfig, _list),
    "init": (InitConfig, _init),
}
