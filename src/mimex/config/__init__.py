"""Settings of a run: frozen dataclasses whose docstrings are the command line's help."""

from mimex.agents import AGENTS
from mimex.agents.encoders import VisionSettings
from mimex.config.families import family_of
from mimex.config.parse import parse, preset
from mimex.config.run import MAY_CHANGE, PRESETS, TrainConfig

__all__ = [
    "TrainConfig",
    "VisionSettings",
    "preset",
    "parse",
    "family_of",
    "AGENTS",
    "PRESETS",
    "MAY_CHANGE",
]
