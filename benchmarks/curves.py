"""Learning curves of a study in one compressed CSV file.

    mimex study run suite --jobs 2
    python -m benchmarks.curves collect suite studies/suite-cpu

writes `benchmarks/results/curves/suite.csv.gz`: one row per run and step, with the columns study,
task, method, seed, step and the metrics of `METRICS`. Runs of a study have the task, method and
order of its plan; other run folders are named by the settings in which they differ. A run keeps
about 200 evenly spaced rows and all rows with an evaluation. The same runs give the same bytes.
`benchmarks.tables` makes the tables and figures from these files.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mimex.files import replacing
from mimex.study.folder import group_as_planned
from mimex.study.groups import Group
from mimex.study.runs import Run, find_runs

FOLDER = Path(__file__).parent / "results" / "curves"
KEYS = ("study", "task", "method", "seed")
METRICS = (
    "eval/success", "eval/return", "train/success", "train/return", "train/reached_lift",
    "train/reached_open", "train/reached_goal", "train/reached_touch", "explore/first_reward",
    "explore/first_touch", "explore/first_lift", "explore/coverage", "bonus/mean", "bonus/share",
    "bonus/probe", "train/episode_steps", "ppo/std", "ppo/approx_kl", "ppo/clip_fraction", "ppo/lr",
    "ppo/explained_variance", "ppo/critic_share", "time/steps_per_second", "time/cpu_seconds",
    "train/gave_up", "restart/success", "restart/distance", "restart/archive",
)  # fmt: skip
ROWS = 200
"""Evenly spaced rows per run, in addition to those with an evaluation."""

Curves = dict[tuple[str, str, str, int], Run]
"""Runs by study, task, method and seed, in the order of the table rows."""


def path_of(name: str) -> Path:
    """Return the file of a study's curves."""
    return FOLDER / f"{name}.csv.gz"


def from_groups(study: str, groups: Iterable[Group]) -> Curves:
    """Return the runs of some groups under the name of their study."""
    return {(study, g.task, g.label, run.seed): run for g in groups for run in g.runs}


def thinned(run: Run, rows: int = ROWS) -> Run:
    """Return a run with some of its rows: evenly spaced ones and those with an evaluation."""
    count = len(run.columns["step"])
    evaluated = np.isfinite(run.columns.get("eval/return", np.full(count, np.nan)))
    kept = (np.arange(count) % max(1, count // rows) == 0) | evaluated
    columns = {name: values[kept] for name, values in run.columns.items()}
    return Run(run.name, run.path, run.config, run.about, columns)


def write(path: Path, curves: Curves) -> None:
    """Write runs to a compressed CSV file; equal runs give equal bytes."""
    metrics = [name for name in METRICS if any(name in run.columns for run in curves.values())]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*KEYS, "step", *metrics])
    for key, run in curves.items():
        steps = run.columns["step"]
        missing = np.full(len(steps), np.nan)
        columns = [steps, *(run.columns.get(name, missing) for name in metrics)]
        writer.writerows([*key, *map(_text, row)] for row in zip(*columns, strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        replacing(path) as aside,
        aside.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,  # neither name nor time in the header
    ):
        packed.write(text.getvalue().encode())


def _text(cell: float) -> str:
    if np.isnan(cell):
        return ""
    return f"{cell:.0f}" if cell.is_integer() else f"{cell:.6g}"  # steps stay whole


def read(path: Path) -> Curves:
    """Read the runs of a file; cells that are empty become NaN."""
    rows: dict[tuple[str, str, str, int], list[list[str]]] = {}
    with gzip.open(path, "rt", newline="") as file:
        reader = csv.reader(file)
        names = next(reader)[len(KEYS) :]
        for study, task, method, seed, *cells in reader:
            rows.setdefault((study, task, method, int(seed)), []).append(cells)
    curves = {}
    for key, table in rows.items():
        values = np.array([[float(cell or "nan") for cell in row] for row in table])
        columns = {
            name: column
            for name, column in zip(names, values.T, strict=True)
            if np.isfinite(column).any()
        }
        gave_up = columns.get("train/gave_up", np.zeros(1))[-1] == 1.0
        # The budget of a run that gave up: the length of the longest run of the task.
        longest = max(float(t[-1][0]) for k, t in rows.items() if k[:2] == key[:2])
        config = {"task": key[1], "seed": key[3], "steps": int(longest) if gave_up else 0}
        curves[key] = Run("-".join(map(str, key[1:])), path, config, {}, columns)
    return curves


def read_groups(
    name: str, study: str | None = None, tasks: Sequence[str] = (), methods: Sequence[str] = ()
) -> list[Group]:
    """Return the runs of a file by task and method, in the order of the file.

    Args:
        name: Name of the file, without its ending.
        study: Value of the column of that name; all by default.
        tasks: Only these, and in this order; all by default.
        methods: Only these; all by default.
    """
    found: dict[tuple[str, str], list[Run]] = {}
    for (of, task, method, _), run in read(path_of(name)).items():
        if study in (None, of) and task in (tasks or [task]) and method in (methods or [method]):
            found.setdefault((task, method), []).append(run)
    order = list(dict.fromkeys([*tasks, *(task for task, _ in found)]))
    labels = list(dict.fromkeys(method for _, method in found))
    return [
        Group(task, label, tuple(sorted(found[task, label], key=lambda run: run.seed)))
        for task in order
        for label in labels
        if (task, label) in found
    ]


def collect(
    name: str, runs: Sequence[Path | str], study: str | None = None, *, add: bool = False
) -> Path:
    """Write the curves of run folders to the file of a study.

    Args:
        name: Name of the file, without its ending.
        runs: Run folders, or folders that contain them.
        study: Value of the column of that name; the file's name by default.
        add: Keep the runs that the file already has; those given replace their predecessors.
    """
    groups, _ = group_as_planned(find_runs(runs))
    path = path_of(name)
    new = {key: thinned(run) for key, run in from_groups(study or name, groups).items()}
    write(path, (read(path) if add and path.exists() else {}) | new)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="write the curves of run folders to one file")
    collecting.add_argument("name", help="name of the file, such as suite")
    collecting.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of them")
    collecting.add_argument("--study", help="value of the column `study`; default: the name")
    collecting.add_argument("--add", action="store_true", help="keep the runs of the file")
    options = parser.parse_args()
    path = collect(options.name, options.runs, options.study, add=options.add)
    print(f"{path}: {len(read(path))} runs")


if __name__ == "__main__":
    main()
