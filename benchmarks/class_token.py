"""Does the released model's class token help to fill in windows?

    python -m benchmarks.class_token --write

Windows of five observations of FrankaReach (oracle state, normalised) under smooth random actions;
the mean error on windows that were not learned from, after so many steps of 512 windows each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium
import numpy as np
import torch

import mimex.envs  # noqa: F401 (registers the tasks)
from benchmarks.machine import describe
from mimex import AutoencoderSize, MIMEx, Window, WindowTracker
from mimex.config.presets import PUBLISHED_BONUSES

RESULTS = Path(__file__).parent / "results" / "class_token.md"
ENVS, STEPS, BATCH = 128, 240, 512
AT = (0, 50, 100, 200, 400)


def windows() -> Window:
    """Windows of random behaviour, with normalised features."""
    env = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=ENVS, observation="oracle")
    generator = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    tracker = WindowTracker(ENVS, 5, observation.shape[1])
    starts, actions = np.ones(ENVS, bool), np.zeros(env.action_space.shape)
    found = []
    for _ in range(STEPS):
        found.append(tracker.push(torch.as_tensor(observation), starts))
        actions = 0.95 * actions + 0.1 * generator.normal(size=actions.shape)
        observation, _, terminated, truncated, _ = env.step(actions)
        starts = terminated | truncated
    env.close()
    features = torch.cat([window.features for window in found])
    valid = torch.cat([window.valid for window in found])
    mean, std = features[valid].mean(0), features[valid].std(0) + 1e-6
    return Window(((features - mean) / std).clamp(-5, 5) * valid.unsqueeze(2), valid)


def errors(data: Window, class_token: bool, seed: int) -> list[float]:
    """The mean error on every tenth window, which is never learned from, at the steps of AT."""
    size = AutoencoderSize(class_token=class_token)
    published = {**PUBLISHED_BONUSES["mimex"], "size": size}
    bonus = MIMEx(data.features.shape[2], seed=seed, **published)
    generator = torch.Generator().manual_seed(seed)
    tenth = torch.arange(len(data)) % 10 == 0
    kept, others = Window(data.features[tenth], data.valid[tenth]), (~tenth).nonzero().flatten()
    curve = []
    for step in range(AT[-1] + 1):
        if step in AT:
            curve.append(float(bonus.reward(kept).mean()))
        rows = others[torch.randint(len(others), (BATCH,), generator=generator)]
        bonus.learn(Window(data.features[rows], data.valid[rows]))
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    data = windows()
    lines = [
        "| class token | seed | " + " | ".join(f"{step} steps" for step in AT) + " |",
        "|---" * (2 + len(AT)) + "|",
    ]
    for class_token in (True, False):
        for seed in range(options.seeds):
            row = " | ".join(f"{error:.3f}" for error in errors(data, class_token, seed))
            lines.append(f"| {'yes' if class_token else 'no'} | {seed} | {row} |")
            print(lines[-1], flush=True)
    if options.write:
        text = (__doc__ or "").strip().splitlines()
        head = ["# The class token", "", f"`{text[2].strip()}` on {describe()}", "", *text[4:], ""]
        RESULTS.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
