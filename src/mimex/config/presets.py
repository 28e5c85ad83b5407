"""Settings of presets that do not belong to an agent; ``families`` combines them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mimex.agents import ppo
from mimex.agents.drqv2 import SMALL_PIXELS
from mimex.bonus.size import PAPER

ALL_WINDOWS = 1 << 20
"""A minibatch of all windows: the released code takes one optimizer step per rollout."""

PUBLISHED_SCALE = {"beta": 0.05, "normalize": False}
"""The paper's scale: the raw bonus."""

PUBLISHED_BONUSES: Mapping[str, Mapping[str, Any]] = {
    "mimex": {"size": PAPER, "lr": 1e-4, "mask_type": "time", "mask_ratio": 0.7},
    "rnd": {"lr": 1e-3},
    "pseudocount": {"lr": 1e-3},
    "disagreement": {"lr": 1e-3},
}
"""Published settings that differ from the defaults. The last two are not in the paper in this form
and were not tuned."""

SURVIVAL_SCALE = {"reward_decay": 1.0, "survival_bonus": 1.0}
"""Scale of the bonus in the cpu preset on PixMC-Sparse. Every step has an action penalty, and
touching the arm ends the episode. The survival bonus compensates for the mean penalty; without it,
agents learn to end their episodes (docs/how-big.md). Beta is not reduced after a reward, because
restarts preserve progress."""

SPARSE: Mapping[str, Any] = {
    "ppo": ppo.SPARSE,
    "restarts": {"share": 0.25},
    "mimex": {"mask_type": "time", "mask_ratio": 0.7},
}
"""Settings of the cpu preset for sparse reward from state on PixMC-Sparse. The bonus also sees only
the object (the hand for Reach). If the object is at rest, a masked time step equals its neighbor,
so that time masking rewards only a moving object (docs/results.md)."""

SMALL_IMAGES: Mapping[str, Any] = {
    "steps": 100_000,
    "suite": {"image_size": 40, "quality": "fast"},
    "drqv2": SMALL_PIXELS,
}
"""Settings of the small preset, for images of the control suite."""
