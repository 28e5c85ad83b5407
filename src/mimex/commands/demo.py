"""`mimex demo`: plain PPO and PPO with MIMEx on two tasks with sparse reward.

The tasks are ``gym/mimex/FlagCar-v0``, MountainCar with a reward of 1 at the flag only, and
FrankaReachUp, an arm that is rewarded at one point above it. Random actions solve neither. Picking
up a cube takes longer to learn than a demo may: its shipped policy is played instead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import tyro

from mimex.commands import eval as evaluation
from mimex.commands import train
from mimex.track.video import ffmpeg

TASKS = {"car": "gym/mimex/FlagCar-v0", "robot": "FrankaReachUp"}
STEPS = {"car": 60_000, "robot": 1_000_000}
QUICK_STEPS = {"car": 6144, "robot": 49_152}  # three rollouts, the first of them a warm-up
METHODS = {"plain PPO": "none", "PPO with MIMEx": "mimex"}
PANELS = {
    "FlagCar: success rate": ("car", "train/success"),
    "FrankaReachUp: success rate": ("robot", "eval/success"),
    "FrankaReachUp: coverage": ("robot", "explore/coverage"),
    "FrankaReachUp: std of the policy": ("robot", "ppo/std"),
}


@dataclass(frozen=True)
class DemoConfig:
    """Train plain PPO and PPO with MIMEx on a game and a robot task, and compare them.

    Writes the runs, their learning curves (curves.png) and a video of the robot (policy.mp4). A
    second video (pick.mp4) shows the shipped policy of FrankaPick, which was trained with MIMEx and
    restarts from sparse reward in 4.6 million steps.
    """

    out: Path = Path("demo")
    """Folder of the results; the same command resumes there."""
    quick: bool = False
    """Train for a few steps only, as a test of the installation; no video."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    config = tyro.cli(DemoConfig, args=arguments, prog="mimex demo")
    import mujoco  # noqa: F401 (missing packages are reported before the training)

    if not config.quick:
        ffmpeg()
    out, steps = config.out, QUICK_STEPS if config.quick else STEPS
    for (task, name), bonus in product(TASKS.items(), METHODS.values()):
        every = max(steps[task] // 20, 1) if not config.quick else steps[task]
        budget = ["--steps", str(steps[task]), "--eval.every", str(every)]
        folder = str(out / f"{task}-{bonus}")
        if code := train.run([name, "--bonus", bonus, *budget, "--out", folder]):
            return code
    draw(out)
    for (task, name), (label, bonus) in product(TASKS.items(), METHODS.items()):
        last = curve(out / f"{task}-{bonus}", "train/success")[-1:] or [(0.0, 0.0)]
        print(f"{name}, {label}: success in {last[0][1]:.0%} of the last training episodes")
    video = ["--episodes", "16"] if config.quick else ["--video", str(out / "policy.mp4")]
    if (code := evaluation.run([str(out / "robot-mimex"), *video])) or config.quick:
        return code
    pick = [
        "FrankaPick-sparse",
        "--pretrained",
        "--episodes",
        "64",
        "--video",
        str(out / "pick.mp4"),
    ]
    return evaluation.run(pick)


def curve(folder: Path, name: str) -> list[tuple[float, float]]:
    """Returns steps (in millions) and values of a metric of a run."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"] / 1e6, row[name]) for row in rows if name in row]


def draw(out: Path) -> None:
    """Draws the learning curves of both methods on both tasks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 3), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    for panel, (title, (task, name)) in zip(axes, PANELS.items(), strict=True):
        for label, bonus in METHODS.items():
            points = curve(out / f"{task}-{bonus}", name)
            marker = "." if len(points) < 30 else ""
            panel.plot([x for x, _ in points], [y for _, y in points], marker=marker, label=label)
        panel.set(title=title, xlabel="million steps")
        panel.legend(frameon=False)
    figure.savefig(out / "curves.png", dpi=120)
