"""Exploration bonuses from masked input modeling, and the PixMC-Sparse benchmark.

The public names below are imported when first used, so that ``import mimex`` is instant, and
someone who only wants the environments does not pay for PyTorch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mimex.bonus import BONUSES
from mimex.extras import optional_import

if TYPE_CHECKING:
    from mimex.bonus import masks
    from mimex.bonus.base import ConstantBonus, IntrinsicReward, NoBonus
    from mimex.bonus.disagreement import Disagreement
    from mimex.bonus.e3b import E3B
    from mimex.bonus.icm import ICM
    from mimex.bonus.mimex import MIMEx
    from mimex.bonus.pseudocount import PseudoCount
    from mimex.bonus.rnd import RND
    from mimex.bonus.scale import BonusScale, Rewards
    from mimex.bonus.size import COMPACT, LARGER, PAPER, AutoencoderSize
    from mimex.check import check_bonus
    from mimex.data.tracker import WindowTracker
    from mimex.data.windows import RolloutWindows
    from mimex.interop.vector import wrap, wrap_vector
    from mimex.nn.parallel import use_workers
    from mimex.policies import load_policy
    from mimex.types import Window

__version__ = "0.3.0"

_HOMES = {
    "Window": "mimex.types",
    **{name: f"mimex.bonus{module}" for module, name in (x.split(":") for x in BONUSES.values())},
    "IntrinsicReward": "mimex.bonus.base",
    "BonusScale": "mimex.bonus.scale",
    "Rewards": "mimex.bonus.scale",
    "WindowTracker": "mimex.data.tracker",
    "RolloutWindows": "mimex.data.windows",
    "AutoencoderSize": "mimex.bonus.size",
    "COMPACT": "mimex.bonus.size",
    "LARGER": "mimex.bonus.size",
    "PAPER": "mimex.bonus.size",
    "wrap": "mimex.interop.vector",
    "wrap_vector": "mimex.interop.vector",
    "check_bonus": "mimex.check",
    "use_workers": "mimex.nn.parallel",
    "load_policy": "mimex.policies",
}

__all__ = [
    "Window",
    "MIMEx",
    "RND",
    "ICM",
    "PseudoCount",
    "Disagreement",
    "E3B",
    "NoBonus",
    "ConstantBonus",
    "IntrinsicReward",
    "masks",
    "AutoencoderSize",
    "COMPACT",
    "LARGER",
    "PAPER",
    "BonusScale",
    "Rewards",
    "WindowTracker",
    "RolloutWindows",
    "wrap",
    "wrap_vector",
    "check_bonus",
    "use_workers",
    "load_policy",
]


# Where Gymnasium is already in use, make the tasks known to it: import gymnasium, mimex, and
# gymnasium.make("mimex/FrankaPick-v0") works. In any other order `import mimex.envs` does it.
if sys.modules.get("gymnasium"):
    import_module("mimex.envs")


def __getattr__(name: str) -> Any:
    if name == "masks":
        return import_module("mimex.bonus.masks")
    if name in _HOMES:
        with optional_import(f"mimex.{name}"):
            return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mimex' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
