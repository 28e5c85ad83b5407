"""Does a bonus fall on what was seen again and again, and rise on what is new?

Asked of the user's own data: what random actions reach in the user's own environment is cut in two,
and a bonus that has learned nothing yet learns from one half.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.doctor.check import Check
from mimex.doctor.evidence import Evidence
from mimex.doctor.probe import MakeEnv, NotingBonus
from mimex.interop.vector import wrap
from mimex.interop.weighted import WeightedBonus
from mimex.types import Window

NOVELTY = "the bonus falls on repeated data and rises on new"

STEPS = 1_200
"""Random actions in the user's own environment."""

WINDOWS = 64
"""Of each half: those that are learned from, and those that are new."""

ROUNDS = 300
"""Most times that the same windows are learned from."""

FALLEN = 0.8
"""It fell when it is below this share of what it was."""

CONTRAST = 1.5
"""Never seen over seen, below which a bonus hardly tells the two apart."""


def check_novelty(make_env: MakeEnv, own: Evidence) -> Check:
    """Trains a new copy of the user's bonus on one half of the user's own data."""
    if own.bonus is None:
        finding = "the bonus was not found in what the set-up returned"
        return Check(NOVELTY, "skip", finding, "return {..., 'bonus': bonus}")
    try:
        halves = _halves(_random_play(make_env, own))
    except ValueError as error:  # pictures whose encoder is in the set-up's own loop
        return Check(NOVELTY, "skip", f"the environment could not be read: {error}")
    if min(map(len, halves)) < WINDOWS // 4:
        finding = f"random actions reach too little in {STEPS} steps to be cut in two"
        return Check(NOVELTY, "skip", finding)
    bonus, (seen, new) = copy.deepcopy(own.bonus), halves
    if hasattr(bonus, "start"):
        bonus.start(bonus.feature_dim)
    first = last = _score(bonus, seen, starts=True)
    for done in range(ROUNDS):
        bonus.learn(seen)
        if done % 20 == 19:
            last = _score(bonus, seen)
            if last < FALLEN / 2 * first:
                break
    contrast = _score(bonus, new) / max(last, 1e-12)
    finding = f"on your own data: at first {first:.3g}, seen {done + 1} times {last:.3g}; "
    finding += f"never seen over seen, its contrast, is {contrast:.3g}"
    if not last < FALLEN * first:
        remedy = "is the learning rate above zero? A bonus that does not follow what was seen is no"
        return Check(NOVELTY, "fail", finding, f"{remedy} novelty")
    if contrast < CONTRAST:
        remedy = "it hardly tells new from seen: try normalize=True, stride=8, or another bonus"
        return Check(NOVELTY, "warn", finding, remedy)
    return Check(NOVELTY, "pass", finding)


def _random_play(make_env: MakeEnv, own: Evidence) -> Window:
    """Windows of random actions, read as the set-up's own bonus reads them."""
    noting = NotingBonus(getattr(own.bonus, "action_dim", None), length=own.bonus.length)
    read_by = own.weighted or WeightedBonus(noting)
    options: Any = {name: getattr(read_by, name) for name in ("view", "encoder", "stride")}
    env = wrap(make_env(), noting, learn_every=None, **options)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(STEPS):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    env.close()
    return Window.cat(noting.windows)


def _halves(windows: Window) -> tuple[Window, Window]:
    """Some windows on one side of the middle of where observations vary most, and of the other."""
    features = windows.features.flatten(2)
    rows = features[windows.valid]
    spread = rows.std(0)
    scaled = torch.where(spread > 0, (features - rows.mean(0)) / spread.clamp(min=1e-9), 0.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        direction = torch.pca_lowrank(scaled[windows.valid], q=1)[2][:, 0]
    place = scaled @ direction  # (M, L)
    beyond = place > place[windows.valid].median()
    generator = torch.Generator().manual_seed(0)

    def some(inside: Tensor) -> Window:
        whole = (inside | ~windows.valid).all(1).nonzero().flatten()
        return windows[whole[torch.randperm(len(whole), generator=generator)[:WINDOWS]]]

    return some(~beyond), some(beyond)


def _score(bonus: IntrinsicReward, windows: Window, *, starts: bool = False) -> float:
    """The mean bonus; of one that follows episodes, with these steps as the next of theirs."""
    if isinstance(bonus, EpisodicReward):
        return float(bonus.follow(windows, torch.full((len(windows),), starts)).mean())
    return float(bonus.reward(windows).mean())
