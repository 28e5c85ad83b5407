"""Are cubes that an agent lifts held, or tossed?

    python -m benchmarks.lifts runs/pick runs/other --write    writes benchmarks/results/lifts.md

Each run's latest policy plays with its noise, as in training, in 128 environments for 1,000 steps.
Of the episodes that ended in them: how many had a lift, for how many steps, in how many of those
the first and the last finger were within an edge's length of the cube's centre (which
`--world.lift held` asks for), and how many of these episodes ended before their time: the cube
fell, or the arm was touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import table_of_runs
from mimex.commands.build import load_agent, make_env

RESULTS = Path(__file__).parent / "results" / "lifts.md"
ENVS, STEPS, SEED = 128, 1_000, 9


def row(run: Path) -> dict[str, str]:
    """A run's cells by column."""
    config, agent, step = load_agent(run, "latest")
    env = make_env(config, ENVS)
    simulation: Any = env.unwrapped
    task = simulation.world.task
    observation, _ = env.reset(seed=SEED)
    lifted, held = np.zeros(ENVS, int), np.zeros(ENVS, int)
    episodes, early, lengths, shares = 0, 0, [], []
    for _ in range(STEPS):
        actions = agent.policy(observation, deterministic=False, step=step)
        observation, _, terminated, truncated, info = env.step(actions)
        up = info["reward/lift_bonus"] > 0
        lifted += up
        held += up & task.between_fingers()
        for env_row in np.flatnonzero(terminated | truncated):
            episodes += 1
            if lifted[env_row]:
                lengths.append(lifted[env_row])
                shares.append(held[env_row] / lifted[env_row])
                early += int(terminated[env_row])
            lifted[env_row] = held[env_row] = 0
    env.close()
    words = [f"{np.median(lengths):.0f}", f"{np.mean(shares):.0%}"] if lengths else ["", ""]
    return {
        "run": run.name,
        "steps": f"{step:,}",
        "episodes": str(episodes),
        "with a lift": str(len(lengths)),
        "its steps, median": words[0],
        "of them held": words[1],
        "ended early": str(early),
    }


if __name__ == "__main__":
    title = "Lifts: held or tossed?"
    table_of_runs(__doc__ or "", title, RESULTS, "run folders of Pick or Move", row)
