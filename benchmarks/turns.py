"""Does a cartpole's policy balance the pole, or spin it?

    python -m benchmarks.turns runs/swingup-* --write    writes benchmarks/results/turns.md

Each run's latest policy plays ten episodes without noise. The sparse reward is paid while the pole
is up and the cart near the middle: a pole that stays up earns hundreds, one that turns passes
through and earns one or two a turn. Turns are those of the pole from the first step to the last.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.machine import table_of_runs
from mimex.commands.build import load_agent, make_env
from mimex.contracts import episode_steps

RESULTS = Path(__file__).parent / "results" / "turns.md"
ENVS, SEED = 10, 9
COS, SIN = 1, 2
"""Of the pole's angle in the state: the cart's position comes first, velocities last."""


def row(run: Path) -> dict[str, str]:
    """A run's cells by column."""
    config, agent, step = load_agent(run, "latest")
    env = make_env(config, ENVS)
    observation, _ = env.reset(seed=SEED)
    angles, returns = [], np.zeros(ENVS)
    for _ in range(episode_steps(env)):
        angles.append(np.arctan2(observation[:, SIN], observation[:, COS]))
        actions = agent.policy(observation, deterministic=True, step=step)
        observation, rewards, *_ = env.step(actions)
        returns += rewards
    env.close()
    turns = abs(np.unwrap(angles, axis=0)[-1] - angles[0]) / (2 * np.pi)
    return {
        "run": run.name,
        "frames": f"{step:,}",
        "return, mean": f"{returns.mean():.0f}",
        "turns, mean": f"{turns.mean():.1f}",
        "reward by turn": f"{returns.sum() / turns.sum():.1f}" if turns.sum() >= ENVS else "",
    }


if __name__ == "__main__":
    table_of_runs(__doc__ or "", "Balanced, or spun?", RESULTS, "run folders of cartpole", row)
