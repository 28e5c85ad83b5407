"""From run folders to what is committed of them: small curves, a table and a figure.

    mimex train FrankaReach --reward sparse --steps 4000000 --seed 0 --out runs/reach-0
    python -m benchmarks.curves NAME runs/reach-*     writes benchmarks/results/learning/NAME*

Each run becomes NAME/<folder>.csv with the metrics that tell whether it learned, about 200 rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results" / "learning"
COLUMNS = (
    "step", "eval/success", "train/success", "train/return", "bonus/mean", "bonus/share",
    "bonus/probe", "explore/coverage", "ppo/std", "time/steps_per_second",
)  # fmt: skip
ROWS = 200  # a run, beside those of evaluations
PANELS = ("eval/success", "train/success", "train/return", "ppo/std")


def read(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    every = max(1, len(rows) // ROWS)
    return [row for i, row in enumerate(rows) if i % every == 0 or "eval/success" in row]


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            cells = (row.get(name) for name in COLUMNS)
            writer.writerow("" if cell is None else f"{cell:.6g}" for cell in cells)


def first_at(rows: list[dict[str, Any]], level: float) -> str:
    steps = [row["step"] for row in rows if row.get("eval/success", 0) >= level]
    return f"{steps[0]:,}" if steps else "never"


def table(runs: dict[str, list[dict[str, Any]]], abouts: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| run | steps | evaluated success: last | best | first at 90 % | steps/s (median) |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in runs.items():
        evaluated = [row["eval/success"] for row in rows if "eval/success" in row]
        speeds = sorted(row["time/steps_per_second"] for row in rows)
        lines.append(
            f"| {name} | {rows[-1]['step']:,} | {evaluated[-1]:.0%} | {max(evaluated):.0%} "
            f"| {first_at(rows, 0.9)} | {speeds[len(speeds) // 2]:,.0f} |"
        )
    lines += ["", "Commands:", "", "```sh"]
    lines += [command(abouts[name]["command"]) for name in runs]
    return "\n".join([*lines, "```", ""])


def command(line: str) -> str:
    """The command as anybody would type it: no paths of the machine it ran on."""
    line = re.sub(r"^\S+", "mimex", line)
    return re.sub(r"--out \S*?([^/\s]+)(?=\s|$)", r"--out runs/\1", line)


def draw(runs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    figure, axes = plt.subplots(
        1, len(PANELS), figsize=(3.5 * len(PANELS), 3), layout="constrained"
    )
    groups = sorted({name.rsplit("-", 1)[0] for name in runs})
    for panel, metric in zip(axes, PANELS, strict=True):
        for name, rows in runs.items():
            group = name.rsplit("-", 1)[0]
            points = [
                (row["step"] / 1e6, row[metric]) for row in rows if row.get(metric) is not None
            ]
            if points:
                label = group if name == next(n for n in runs if n.startswith(group)) else None
                panel.plot(*zip(*points, strict=True), color=f"C{groups.index(group)}", label=label)
        panel.set(title=metric, xlabel="million steps")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, named GROUP-SEED")
    args = parser.parse_args()
    runs = {run.name: read(run) for run in args.runs}
    abouts = {run.name: json.loads((run / "about.json").read_text()) for run in args.runs}
    for name, rows in runs.items():
        write_csv(rows, RESULTS / args.name / f"{name}.csv")
    text = table(runs, abouts)
    (RESULTS / f"{args.name}.md").write_text(
        f"# {args.name}\n\n![curves]({args.name}.png)\n\n{text}"
    )
    draw(runs, RESULTS / f"{args.name}.png")
    print(text)


if __name__ == "__main__":
    main()
