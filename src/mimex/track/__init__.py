"""Metrics, videos and what the terminal shows; loggers by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mimex.track.sinks import RunInfo, Sink

LOGGERS = {
    "tensorboard": ".tensorboard:TensorBoard",
    "wandb": ".hosted:WandB",
    "trackio": ".hosted:Trackio",
}
"""Module and class of every logger, by its name in ``--track.loggers``.

A new logger is its file and a line here."""


def make_logger(name: str, run: RunInfo) -> Sink:
    """A logger by its name."""
    module, _, kind = LOGGERS[name].partition(":")
    logger: Sink = getattr(import_module(module, __name__), kind)(run)
    return logger
