"""What the terms of a task's reward pay an agent.

    python -m benchmarks.terms runs/cabinet runs/other --write    writes benchmarks/results/terms.md

Each run's latest policy plays without noise in 64 environments for 490 steps. The pay of each term
in a step, weighted, over the last 190 of them, when the agent is where it wanted to go.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from mimex.commands.build import load_agent, make_env
from mimex.nn.parallel import use_workers

RESULTS = Path(__file__).parent / "results" / "terms.md"
ENVS, STEPS, LAST, SEED = 64, 490, 190, 9
PREFIX = "reward/"


def paid(run: Path) -> dict[str, str]:
    """A run's cells by column."""
    config, agent, step = load_agent(run, "latest")
    env = make_env(config, ENVS)
    simulation: Any = env.unwrapped
    sums: defaultdict[str, float] = defaultdict(float)
    observation, _ = env.reset(seed=SEED)
    for index in range(STEPS):
        actions = agent.policy(observation, deterministic=True, step=step)
        observation, reward, _, _, info = env.step(actions)
        if index < STEPS - LAST:
            continue
        for name in (key for key in info if key.startswith(PREFIX)):
            term = name.removeprefix(PREFIX)
            sums[term] += simulation.weights[term] * float(np.mean(info[name]))
        sums["all"] += float(np.mean(reward))
    env.close()
    return {"run": run.name, "steps": f"{step:,}"} | {
        term: f"{total / LAST:.2f}" for term, total in sums.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of one task")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    use_workers(1)
    rows = [paid(run) for run in args.runs]
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    lines += [f"| {' | '.join(row.values())} |" for row in rows]
    text = "\n".join(lines)
    print(text)
    if args.write:
        told = [" ".join(line.split()) for line in (__doc__ or "").splitlines()[4:] if line]
        RESULTS.write_text(
            f"# What the terms of the reward pay\n\n{' '.join(told)}\n\n{text}\n\n{describe()}\n"
        )


if __name__ == "__main__":
    main()
