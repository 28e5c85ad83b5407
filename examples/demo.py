"""What a bonus is for, in two parts: a game that plain PPO does not solve, and a robot that learns.

    python examples/demo.py --out demo

The game is `gym/mimex/FlagCar-v0`: MountainCar that pays nothing but 1 at the flag, which noise
does not find. Plain PPO and PPO with MIMEx play it for the same number of steps. The robot is
FrankaReach, with MIMEx beside a dense reward; it is evaluated and filmed.
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mimex.cli import main as mimex

GAME = "gym/mimex/FlagCar-v0"
GAMES = {"plain PPO": "none", "PPO with MIMEx": "mimex"}
ROBOT = {
    "FrankaReach: success": ("train/success", "eval/success"),
    "FrankaReach: raw bonus per step": ("bonus/mean", "bonus/probe"),
    "FrankaReach: grid visited": ("explore/coverage",),
}


def curve(run: Path, name: str) -> list[tuple[float, float]]:
    """A metric of a run over millions of steps."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"] / 1e6, row[name]) for row in rows if name in row]


def draw(out: Path) -> None:
    """Draws the curves of the three runs."""
    figure, axes = plt.subplots(1, 1 + len(ROBOT), figsize=(16, 3), layout="constrained")
    panels = [
        (
            "MountainCar with the flag alone: success",
            {label: (out / bonus, "train/success") for label, bonus in GAMES.items()},
        )
    ]
    panels += [
        (title, {name: (out / "run", name) for name in names}) for title, names in ROBOT.items()
    ]
    for panel, (title, lines) in zip(axes, panels, strict=True):
        for label, (run, name) in lines.items():
            points = curve(run, name)
            marker = "." if len(points) < 30 else ""
            panel.plot(*zip(*points, strict=True), marker=marker, label=label)
        panel.set(title=title, xlabel="million steps")
        panel.legend(frameon=False)
    figure.savefig(out / "curves.png", dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--game-steps", type=int, default=60_000)
    parser.add_argument("--steps", type=int, default=500_000, help="of the robot")
    parser.add_argument("--out", type=Path, default=Path("demo"))
    options, more = parser.parse_known_args()
    out = options.out
    robot = ["FrankaReach", "--reward", "dense", "--bonus", "mimex", "--steps", str(options.steps)]
    runs = {
        bonus: [GAME, "--bonus", bonus, "--steps", str(options.game_steps)]
        for bonus in GAMES.values()
    } | {"run": robot}
    for name, arguments in runs.items():
        if code := mimex(["train", *arguments, "--out", str(out / name), *more]):
            return code
    draw(out)
    for label, bonus in GAMES.items():
        found = curve(out / bonus, "train/success")[-1][1]
        print(f"MountainCar with the flag alone, {label}: {found:.0%} of the last episodes")
    return mimex(["eval", str(out / "run"), "--video", str(out / "policy.mp4")])


if __name__ == "__main__":
    sys.exit(main())
