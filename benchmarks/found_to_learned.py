"""How long it takes from the first reward to half of the episodes, from committed curves alone.

    mimex study run benchmarks/plans/found_to_learned.toml --jobs 2 --threads 1     continues
    python -m benchmarks.curves found-to-learned studies/found_to_learned-cpu      writes its curves
    python -m benchmarks.found_to_learned             writes results/found_to_learned.md

A goal that is met in one episode of hundreds is learned much later, or lost again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite import RESULTS, SOLVED, SUCCESS, read_curves
from mimex.study.figures import by_task
from mimex.study.groups import Group
from mimex.study.runs import Run
from mimex.study.survival import waits_of

PLAN = Path(__file__).parent / "plans" / "found_to_learned.toml"


def cell(runs: Sequence[Run]) -> str:
    """Of each seed, in thousand steps: the first reward, and from there to half of the episodes."""
    told, waited = [], waits_of(runs)
    for run, met, found in zip(runs, waited.steps, waited.met, strict=True):
        steps, success = run.curve(SUCCESS)
        half = steps[success >= SOLVED]
        learned = f"{(half[0] - met) / 1e3:.0f}" if len(half) else "never"
        told.append(f"{met / 1e3:.0f} + {learned}" if found else "never")
    return ", ".join(told)


def table(groups: Sequence[Group]) -> str:
    """Variants by tasks."""
    tasks = by_task(groups)
    labels = list(dict.fromkeys(group.label for group in groups))
    lines = [f"| | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    for label in labels:
        found = {group.task: cell(group.runs) for group in groups if group.label == label}
        lines.append(f"| {label} | " + " | ".join(found.get(task, "") for task in tasks) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = f"""# From found to learned

    python -m benchmarks.found_to_learned

Thousand steps to the first reward, and from there to half of an evaluation's episodes, of each seed
(100 and 101). MIMEx by its defaults but for what is said.

{table(read_curves(str(PLAN), "found-to-learned"))}"""
    (RESULTS / "found_to_learned.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
