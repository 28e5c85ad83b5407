"""What a bonus is for: a game and a robot's task that plain PPO does not solve, and MIMEx does.

    python examples/demo.py --out demo

The game is `gym/mimex/FlagCar-v0`, MountainCar that pays nothing but 1 at the flag. The robot is
FrankaReachUp: an arm that is paid at one point above it. Noise finds neither. Plain PPO and PPO
with MIMEx have the same number of steps; the robot is then evaluated and filmed.
"""

import argparse
import json
import sys
from itertools import product
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mimex.cli import main as mimex

TASKS = {"car": "gym/mimex/FlagCar-v0", "robot": "FrankaReachUp"}
METHODS = {"plain PPO": "none", "PPO with MIMEx": "mimex"}
PANELS = {
    "MountainCar with the flag alone: success": ("car", "train/success"),
    "FrankaReachUp: success": ("robot", "eval/success"),
    "FrankaReachUp: grid visited": ("robot", "explore/coverage"),
    "FrankaReachUp: policy's deviation": ("robot", "ppo/std"),
}


def curve(run: Path, name: str) -> list[tuple[float, float]]:
    """A metric of a run over millions of steps."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"] / 1e6, row[name]) for row in rows if name in row]


def draw(out: Path) -> None:
    """Draws the curves of both methods on both tasks."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(16, 3), layout="constrained")
    for panel, (title, (task, name)) in zip(axes, PANELS.items(), strict=True):
        for label, bonus in METHODS.items():
            points = curve(out / f"{task}-{bonus}", name)
            marker = "." if len(points) < 30 else ""
            panel.plot(*zip(*points, strict=True), marker=marker, label=label)
        panel.set(title=title, xlabel="million steps")
        panel.legend(frameon=False)
    figure.savefig(out / "curves.png", dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--car-steps", type=int, default=60_000)
    parser.add_argument("--robot-steps", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    options, more = parser.parse_known_args()
    out = options.out
    steps = {"car": options.car_steps, "robot": options.robot_steps}
    for (task, name), bonus in product(TASKS.items(), METHODS.values()):
        budget = ["--steps", str(steps[task]), "--eval.every", str(max(steps[task] // 20, 1))]
        folder = str(out / f"{task}-{bonus}")
        if code := mimex(["train", name, "--bonus", bonus, *budget, "--out", folder, *more]):
            return code
    draw(out)
    for (task, name), (label, bonus) in product(TASKS.items(), METHODS.items()):
        found = curve(out / f"{task}-{bonus}", "train/success")[-1][1]
        print(f"{name}, {label}: success in {found:.0%} of the last training episodes")
    return mimex(["eval", str(out / "robot-mimex"), "--video", str(out / "policy.mp4")])


if __name__ == "__main__":
    sys.exit(main())
