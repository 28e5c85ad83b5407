"""What the terms of a task's reward pay an agent.

    python -m benchmarks.terms runs/cabinet runs/other --write    writes benchmarks/results/terms.md

Each run's latest policy plays without noise in 64 environments for 490 steps. The pay of each term
in a step, weighted, over the last 190 of them, when the agent is where it wanted to go.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import table_of_runs
from mimex.commands.build import load_agent, make_env

RESULTS = Path(__file__).parent / "results" / "terms.md"
ENVS, STEPS, LAST, SEED = 64, 490, 190, 9
PREFIX = "reward/"


def row(run: Path) -> dict[str, str]:
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


if __name__ == "__main__":
    title = "What the terms of the reward pay"
    table_of_runs(__doc__ or "", title, RESULTS, "run folders of one task", row)
