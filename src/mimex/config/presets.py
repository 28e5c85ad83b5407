"""Presets that are not an agent's own, each with its reason; ``families`` chooses among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mimex.agents import ppo
from mimex.agents.drqv2 import SMALL_PIXELS
from mimex.bonus.size import PAPER

ALL_WINDOWS = 1 << 20
"""The release takes one optimizer step of the bonus per rollout, on all of its windows."""

PUBLISHED_SCALE = {"beta": 0.05, "normalize": False}
"""The paper's: the raw bonus."""

PUBLISHED_BONUSES: Mapping[str, Mapping[str, Any]] = {
    "mimex": {"size": PAPER, "lr": 1e-4, "mask_type": "time", "mask_ratio": 0.7},
    "rnd": {"lr": 1e-3},
    "pseudocount": {"lr": 1e-3},
    "disagreement": {"lr": 1e-3},
}
"""Published settings that differ from the defaults. For the last two, which the paper does not have
in this form, those before a search."""

BESIDE_COSTS = {"reward_decay": 1.0, "survival_bonus": 1.0}
"""Scale of the bonus in the cpu preset on PixMC-Sparse. Every step costs an action penalty there,
and touching the arm ends the episode: the survival bonus compensates for an average step's cost, or
agents learn to end their episodes (docs/how-big.md). Restarts keep what was found, so that beta
need not be reduced for it."""

SPARSE: Mapping[str, Any] = {
    "ppo": ppo.SPARSE,
    "restarts": {"share": 0.25},
    "mimex": {"mask_type": "time", "mask_ratio": 0.7},
}
"""What the cpu preset changes for sparse reward from state on PixMC-Sparse, whatever the bonus. The
bonus also sees the object alone (of Reach the hand). Of an object at rest a masked step is a copy
of its neighbor, so that masking whole steps rewards nothing but a moving object (docs/results.md).
"""

SMALL_IMAGES: Mapping[str, Any] = {
    "steps": 100_000,
    "suite": {"image_size": 40, "quality": "fast"},
    "drqv2": SMALL_PIXELS,
}
"""The small preset, from images of the control suite."""
