"""How near noise comes to places of the workspace: where a goal has to be found.

    python -m benchmarks.far_places            writes benchmarks/results/far_places.md

512 robots play episodes of 100 steps with the noise that a policy of the cpu preset begins with,
and never learn. A goal counts as touched within 4 cm.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
from numpy.typing import NDArray

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.config.presets import CPU
from mimex.envs.catalogue import robot_and_kind, robot_named

RESULTS = Path(__file__).parent / "results" / "far_places.md"
ENVS, STEPS, LENGTH, RADIUS = 512, 300, 100, 0.04

PLACES: dict[str, dict[str, tuple[float, float, float]]] = {
    "FrankaReach": {
        "up (FrankaReachUp)": (0.0, 0.0, 0.35),
        "less up": (0.0, 0.0, 0.3),
        "right, up": (0.15, -0.3, 0.3),
        "left": (0.0, 0.5, 0.0),
        "far, right, down": (-0.15, -0.2, -0.2),
        "far, left, down": (-0.15, 0.3, -0.2),
        "further right, up (FrankaReachRight)": (0.15, -0.4, 0.3),
        "right, up, middle": (0.0, -0.3, 0.2),
        "left, up": (0.0, 0.3, 0.3),
    },
    "KukaReach": {
        "up, left (KukaReachLeft)": (0.0, 0.4, 0.4),
        "left": (0.0, 0.5, 0.0),
        "far, up": (-0.15, 0.0, 0.4),
        "right, up": (0.0, -0.4, 0.35),
        "far, right": (-0.15, -0.4, 0.2),
    },
}
"""Offsets from the middle of the workspace (m; x towards the robot's base, z up): those of the
variants, and of the plans far_places_*.toml."""


def visited(task: str, seed: int = 0) -> NDArray[np.float64]:
    """Where the hand was, from the middle of the workspace: ``(STEPS * ENVS, 3)``."""
    env = gymnasium.make_vec(
        f"mimex/{task}-v0", num_envs=ENVS, episode_steps=LENGTH, goal_spread=0.0, threads=1
    )
    env.reset(seed=seed + 1)
    rng = np.random.default_rng(seed)
    simulation, found = env.unwrapped, []
    for _ in range(STEPS):
        env.step(rng.normal(0, CPU.initial_std, env.action_space.shape).astype(np.float32))
        found.append(np.array(simulation.places()))  # type: ignore[attr-defined]
    env.close()
    return np.concatenate(found) - robot_named(robot_and_kind(task)[0]).reach_centre


def main() -> None:
    lines = [
        "# How near noise comes to far goals",
        "",
        "    python -m benchmarks.far_places",
        "",
        f"{ENVS * STEPS:,} steps of noise, standard deviation {CPU.initial_std}, in episodes of",
        f"{LENGTH} steps: the nearest that the hand came to each place, and touches.",
        "",
        "| task | goal | offset from the middle (m) | nearest | touched |",
        "|---|---|---|---|---|",
    ]
    for task, places in PLACES.items():
        hand = visited(task)
        for name, place in places.items():
            distance = np.linalg.norm(hand - np.array(place), axis=1)
            touched = float((distance <= RADIUS).mean())
            share = "never" if touched == 0 else f"{1e6 * touched:.0f} in a million"
            lines.append(f"| {task} | {name} | {place} | {100 * distance.min():.1f} cm | {share} |")
    text = "\n".join(lines) + "\n"
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
