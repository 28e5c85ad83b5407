"""Trains with MIMEx beside the reward, evaluates, and leaves a picture of the curves and a video.

python examples/demo.py --steps 600000 --out demo
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mimex.cli import main as mimex

CURVES = {
    "success": ("train/success", "eval/success"),
    "bonus per step, raw": ("bonus/mean", "bonus/probe"),
    "share of the cells visited": ("explore/coverage",),
    "the policy's std": ("ppo/std",),
}


def draw(run: Path, picture: Path) -> None:
    """Draws the curves of a run."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(1, len(CURVES), figsize=(4 * len(CURVES), 3), layout="constrained")
    for panel, (title, names) in zip(axes, CURVES.items(), strict=True):
        for name in names:
            points = [(row["step"] / 1e6, row[name]) for row in rows if name in row]
            panel.plot(
                *zip(*points, strict=True), marker="." if len(points) < 30 else "", label=name
            )
        panel.set(title=title, xlabel="million steps")
        panel.legend(frameon=False)
    figure.savefig(picture, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="FrankaReach")
    parser.add_argument("--steps", type=int, default=600_000)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    options, more = parser.parse_known_args()
    run = options.out / "run"
    train = ["train", options.task, "--reward", "dense", "--bonus", "mimex"]
    code = mimex([*train, "--steps", str(options.steps), "--out", str(run), *more])
    if code:
        return code
    draw(run, options.out / "curves.png")
    return mimex(["eval", str(run), "--video", str(options.out / "policy.mp4")])


if __name__ == "__main__":
    sys.exit(main())
