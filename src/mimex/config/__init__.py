"""What a run is: frozen settings, whose docstrings are the command line's help."""

from mimex.config.command_line import parse
from mimex.config.parts import (
    EvalSettings,
    ICMSettings,
    MIMExSettings,
    PseudoCountSettings,
    RNDSettings,
    ScaleSettings,
    SuiteSettings,
    TrackSettings,
    VisionSettings,
    WorldSettings,
)
from mimex.config.presets import preset
from mimex.config.run import AGENTS, BONUSES, MAY_CHANGE, PRESETS, TrainConfig, of_suite

__all__ = [
    "TrainConfig",
    "preset",
    "parse",
    "of_suite",
    "AGENTS",
    "BONUSES",
    "PRESETS",
    "MAY_CHANGE",
    "ScaleSettings",
    "MIMExSettings",
    "RNDSettings",
    "ICMSettings",
    "PseudoCountSettings",
    "WorldSettings",
    "SuiteSettings",
    "VisionSettings",
    "EvalSettings",
    "TrackSettings",
]
