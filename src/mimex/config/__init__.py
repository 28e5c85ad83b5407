"""What a run is: frozen settings, whose docstrings are the command line's help."""

from mimex.config.presets import parse, preset
from mimex.config.run import AGENTS, MAY_CHANGE, PRESETS, TrainConfig, VisionSettings, of_suite

__all__ = [
    "TrainConfig",
    "VisionSettings",
    "preset",
    "parse",
    "of_suite",
    "AGENTS",
    "PRESETS",
    "MAY_CHANGE",
]
