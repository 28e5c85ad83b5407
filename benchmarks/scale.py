"""How fast may averages of the bonus forget? Raw streams of all bonuses, paid by the one rule.

    python -m benchmarks.scale              table and figure in benchmarks/results/scale/

Random actions on three small tasks, 8 environments, 5,000 steps each, bonuses that learn every 512
transitions. The raw streams are kept in streams.npz beside the table (not committed) and are read
again when they are there. "Paid" is in multiples of what an average bonus should be paid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

import mimex
from benchmarks.tasks import TASKS, TITLES
from mimex.bonus.base import IntrinsicReward
from mimex.bonus.scale import HALF_LIFE, BonusScale

RESULTS = Path(__file__).parent / "results" / "scale"
ENVS, STEPS, BLOCKS = 8, 5_000, 8
HALF_LIVES = (100.0, 300.0, 1_000.0, 3_000.0, 10_000.0)
CHOSEN = ("cartpole", "pendulum", "mountaincar")
BONUSES: dict[str, Callable[[], IntrinsicReward]] = {
    "MIMEx": lambda: mimex.MIMEx(normalise=True),
    "RND": lambda: mimex.RND(normalise=True),
    "ICM": lambda: mimex.ICM(normalise=True),
    "pseudo-count": lambda: mimex.PseudoCount(normalise=True),
    "MIMEx, raw features": lambda: mimex.MIMEx(),
    "RND, raw features": lambda: mimex.RND(),
}


def stream(task: str, bonus: IntrinsicReward) -> NDArray[Any]:
    """The raw bonus ``(M, N)`` of random actions."""
    envs = SyncVectorEnv([TASKS[task]] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    wrapped = mimex.wrap_vector(envs, bonus, beta=BonusScale(1.0, "raw"))
    wrapped.action_space.seed(0)
    wrapped.reset(seed=0)
    rows = [wrapped.step(wrapped.action_space.sample())[4] for _ in range(STEPS)]
    return np.stack([row["reward_intrinsic"] for row in rows])


def paid(raw: NDArray[Any], half_life: float) -> NDArray[Any]:
    """What the rule pays for a stream, in averages."""
    scale = BonusScale(1.0, half_life=half_life)
    return scale.combine(np.ones_like(raw), raw).intrinsic.numpy()


def table(streams: dict[str, NDArray[Any]]) -> list[str]:
    """One row a half-life: the extremes over all streams."""
    rows = [
        "| half-life | first step | most in 100 steps | least mean of an eighth | last eighth |",
        "|---|---|---|---|---|",
    ]
    for half_life in HALF_LIVES:
        all_paid = [paid(raw, half_life) for raw in streams.values()]
        blocks = np.array([p.reshape(BLOCKS, -1).mean(1) for p in all_paid])
        first = [p[0].mean() for p in all_paid]
        start = max(p[:100].max() for p in all_paid)
        rows.append(
            f"| {half_life:,.0f} | {min(first):.2f} to {max(first):.2f} | {start:.3g} | "
            f"{blocks.min():.2f} | {blocks[:, -1].min():.2f} to {blocks[:, -1].max():.2f} |"
        )
    return rows


def draw(streams: dict[str, NDArray[Any]], path: Path) -> None:
    """The raw streams and what is paid for them, task by task."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(CHOSEN), figsize=(12, 5.5), layout="constrained")
    for column, task in enumerate(CHOSEN):
        for name in BONUSES:
            raw = streams[f"{task}/{name}"]
            for panel, values in zip(axes[:, column], (raw, paid(raw, HALF_LIFE)), strict=True):
                means = values.reshape(50, -1).mean(1)
                panel.semilogy(np.arange(50) * raw.size / 50, means, label=name)
        axes[0, column].set(title=TITLES[task], ylabel="raw bonus")
        axes[1, column].set(xlabel="environment steps", ylabel="paid, in averages", ylim=(0.05, 20))
    axes[0, 0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=RESULTS)
    folder: Path = parser.parse_args().folder
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "streams.npz"
    streams: dict[str, NDArray[Any]] = dict(np.load(kept)) if kept.exists() else {}
    for task in CHOSEN:
        for name, make in BONUSES.items():
            if f"{task}/{name}" not in streams:
                streams[f"{task}/{name}"] = stream(task, make())
                np.savez_compressed(kept, **streams)  # type: ignore[arg-type]
                print(task, name, flush=True)
    text = (
        "# Averages of the bonus: how fast may they forget?\n\n    python -m benchmarks.scale\n\n"
        f"{len(streams)} raw streams (three tasks, six bonuses, {ENVS} environments, {STEPS:,} "
        "steps each) paid by the one rule; in averages.\n\n" + "\n".join(table(streams)) + "\n"
    )
    (folder / "table.md").write_text(text)
    draw(streams, folder / "streams.png")
    print(text)


if __name__ == "__main__":
    main()
