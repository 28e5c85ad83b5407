"""Watch the bonus: it falls while a behaviour repeats, and rises when the behaviour changes.

A point circles one way, then the other way, then stands still while its sensors jitter. Each bonus
learns online from windows of the last five steps. Writes novelty.png.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import mimex

STEPS, ENVS, LENGTH = 600, 32, 5


def observations() -> torch.Tensor:
    """(steps, envs, 4): position and velocity of points on circles; three acts of 200 steps."""
    generator = torch.Generator().manual_seed(0)
    phase = torch.rand(ENVS, generator=generator) * 6.28
    speed = torch.cat([torch.full((200,), 0.2), torch.full((200,), -0.35), torch.zeros(200)])
    angle = phase + speed.cumsum(0)[:, None]
    position = torch.stack([angle.cos(), angle.sin()], -1)
    velocity = speed[:, None, None] * torch.stack([-angle.sin(), angle.cos()], -1)
    noise = 0.05 * torch.randn(STEPS, ENVS, 4, generator=generator)
    return torch.cat([position, 3 * velocity], -1) + noise


def main(out: Path) -> None:
    bonuses = {
        "MIMEx": mimex.MIMEx(4, LENGTH, lr=1e-3),
        "RND": mimex.RND(4, LENGTH),
        "pseudo-count": mimex.PseudoCount(4, LENGTH),
    }
    tracker = mimex.WindowTracker(ENVS, LENGTH, 4)
    curves: dict[str, list[float]] = {name: [] for name in bonuses}
    for step, observation in enumerate(observations()):
        window = tracker.push(observation, torch.full((ENVS,), step == 0))
        for name, bonus in bonuses.items():
            reward, _ = bonus.learn(window)
            curves[name].append(float(reward.mean()))
    figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
    for name, curve in curves.items():
        axis.plot(torch.tensor(curve) / curve[10], label=name, linewidth=1.2)
    for start, act in ((0, "circling"), (200, "the other way, faster"), (400, "standing still")):
        axis.axvline(start, color="grey", linewidth=0.5)
        axis.text(start + 5, 25, act, fontsize=8, va="top")
    axis.set(yscale="log", xlim=(5, STEPS), ylim=(5e-3, 30), xlabel="step")
    axis.set_ylabel("bonus (step 10 = 1)")
    axis.legend(loc="upper right", fontsize=8)
    figure.savefig(out, dpi=150)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "novelty.png"))
