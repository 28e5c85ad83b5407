"""Are cubes that an agent lifts held, or tossed?

    python -m benchmarks.lifts runs/pick runs/other --write    writes benchmarks/results/lifts.md

Each run's latest policy plays with its noise, as in training, in 128 environments for 1,000 steps.
Of the episodes that ended in them: how many had a lift, for how many steps, in how many of those
the first and the last finger were within an edge's length of the cube's centre (which
`--world.lift held` asks for), and how many of these episodes ended before their time: the cube
fell, or the arm was touched.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from mimex.commands.build import load_agent, make_env
from mimex.nn.parallel import use_workers

RESULTS = Path(__file__).parent / "results" / "lifts.md"
ENVS, STEPS, SEED = 128, 1_000, 9
HEAD = (
    "| run | steps | episodes | with a lift | its steps, median | of them held | ended early |\n"
    "|---|---|---|---|---|---|---|"
)


def row(run: Path) -> str:
    """A run's line of the table."""
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
    cells = [run.name, f"{step:,}", str(episodes), str(len(lengths)), *words, str(early)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders of Pick or Move")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    use_workers(1)
    lines = [HEAD, *(row(run) for run in args.runs)]
    text = "\n".join(lines)
    print(text)
    if args.write:
        told = [" ".join(line.split()) for line in (__doc__ or "").splitlines()[4:] if line]
        RESULTS.write_text(
            f"# Lifts: held or tossed?\n\n{' '.join(told)}\n\n{text}\n\n{describe()}\n"
        )


if __name__ == "__main__":
    main()
