"""Ships trained policies: the best run of each task and reward goes to src/mimex/pretrained.

Run from the project's root: python scripts/ship.py RUNS... (run folders, or folders of them)

Runs are compared by their own best evaluation, whose checkpoint is exported. The model card has the
evaluation of 256 other episodes. A policy is shipped if it succeeds in at least half of them, and
more often than the shipped one of the same name; `tests/test_policies.py` evaluates each again.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np

from mimex.commands import export
from mimex.envs.catalog import NAMES
from mimex.policies import FOLDER, MLPPolicy, card_path, load_policy, names
from mimex.study.runs import Run, find_runs

LOWEST = 0.5
"""Success rate from which a policy is shipped."""
LIMIT = 3e6
"""Size of all shipped files (bytes)."""


def name_of(run: Run) -> str:
    """Return the name of the shipped policy of a run."""
    task, reward = run.config["task"], run.config["reward"]
    return task if reward == "dense" else f"{task}-{reward}"


def best_evaluation(run: Run) -> float:
    """Return the best evaluated success rate of a run; 0 if it was never evaluated."""
    return float(np.nanmax(run.columns.get("eval/success", np.zeros(1))))


def is_shippable(run: Run) -> bool:
    """Return whether a run has a policy that can be exported, of a task of PixMC-Sparse."""
    config = run.config
    return (
        config.get("task") in NAMES
        and config.get("agent") == "ppo"
        and config.get("observation") != "pixels"
        and any((run.path / "checkpoints").glob("*"))
    )


def rate(policy: MLPPolicy) -> float:
    """Return the success rate on the model card."""
    return float((policy.card["success"] or {"rate": 0.0})["rate"])


def ship(name: str, run: Run, folder: Path = FOLDER) -> str:
    """Export a run and move the files to the shipped ones; return what was done."""
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / f"{name}.safetensors"
        if export.run([str(run.path), str(made), "--checkpoint", "best"]):
            return "not exported"
        new, target = rate(load_policy(made)), folder / made.name
        old = rate(load_policy(target)) if target.exists() else 0.0
        if new < LOWEST or new <= old:
            return f"not shipped: {new:.1%} of 256 episodes; the shipped one has {old:.1%}"
        for path in (made, card_path(made)):
            shutil.move(path, folder / path.name)
    return f"shipped: {new:.1%} of 256 episodes"


def main() -> None:
    """Ship the best run of each task and reward."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    best: dict[str, Run] = {}
    for run in filter(is_shippable, find_runs(parser.parse_args().runs)):
        name = name_of(run)
        if name not in best or best_evaluation(run) > best_evaluation(best[name]):
            best[name] = run
    for name, run in sorted(best.items()):
        print(f"{name}, {run.path}: {ship(name, run)}", flush=True)
    size = sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file())
    print(f"{len(names())} policies, {size / 1e6:.2f} MB")
    if size > LIMIT:
        raise SystemExit(f"more than {LIMIT / 1e6:g} MB: remove some")


if __name__ == "__main__":
    main()
