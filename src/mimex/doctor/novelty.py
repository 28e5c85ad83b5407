"""Does a bonus fall on what was seen again and again, and rise on what is new?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.doctor.check import Check
from mimex.types import Window

NOVELTY = "the bonus falls on repeated data and rises on new"

WINDOWS = 64
ROUNDS = 300
"""Most times that the same windows are learned from."""

FALLEN = 0.8
"""It fell when it is below this share of what it was."""


def check_novelty(bonus: IntrinsicReward) -> Check:
    """Trains a bonus on a few windows again and again; its state is put back afterwards."""
    state = bonus.state_dict()
    generator = torch.Generator().manual_seed(0)
    seen, new = (_walks(bonus, generator, turned=turned) for turned in (False, True))
    try:
        first = last = _score(bonus, seen, starts=True)
        for done in range(ROUNDS):
            bonus.learn(seen)
            if done % 20 == 19:
                last = _score(bonus, seen)
                if last < FALLEN / 2 * first:
                    break
        fresh = _score(bonus, new)
    finally:
        if state.get("feature_dim", 1):  # a state from before the first window cannot be put back
            bonus.load_state_dict(state)
    finding = f"at first {first:.3g}, seen {done + 1} times {last:.3g}, then new data {fresh:.3g}"
    finding += f": a contrast of {fresh / max(last, 1e-12):.3g}"
    if last < FALLEN * first and fresh > last:
        return Check(NOVELTY, "pass", finding)
    return Check(
        NOVELTY,
        "fail",
        finding,
        "is bonus.learn called on what is scored, and the learning rate above zero? A bonus that "
        "does not follow what was seen is no novelty",
    )


def _score(bonus: IntrinsicReward, windows: Window, *, starts: bool = False) -> float:
    """The mean bonus; of one that follows episodes, with these steps as the next of theirs."""
    if isinstance(bonus, EpisodicReward):
        return float(bonus.follow(windows, torch.full((len(windows),), starts)).mean())
    return float(bonus.reward(windows).mean())


def _walks(bonus: Any, generator: torch.Generator, *, turned: bool) -> Window:
    """Windows of smooth random walks in the units that the bonus is used to; or unlike ones."""
    width = getattr(bonus, "feature_dim", 0) or 8
    size = (WINDOWS, bonus.length, width)
    start = torch.randn(WINDOWS, 1, width, generator=generator)
    walks = start + 0.3 * torch.randn(size, generator=generator).cumsum(1)
    if turned:
        walks = 2 - 2 * torch.randn(size, generator=generator)  # jumps, elsewhere
    statistics = getattr(bonus, "statistics", None)
    if getattr(bonus, "one_hot", False):  # codes: of one half, or of the other
        half = width // 2
        codes = torch.randint(half, size[:2], generator=generator) + (width - half) * turned
        walks = torch.nn.functional.one_hot(codes, width).float()
    elif statistics is not None:
        walks = walks * statistics.std.float() + statistics.mean.float()
    actions: Tensor | None = None
    dim = getattr(bonus, "action_dim", None)
    if dim is not None:
        chosen = torch.randint(dim, size[:2], generator=generator)
        actions = torch.nn.functional.one_hot(chosen, dim).float()
    return Window(walks, None, actions)
