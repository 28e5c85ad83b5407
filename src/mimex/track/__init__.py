"""Metrics, videos and the progress display."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mimex.track.loggers import Logger, RunInfo

LOGGERS = {
    "tensorboard": ".loggers:TensorBoard",
    "wandb": ".loggers:WandB",
    "trackio": ".loggers:Trackio",
}
"""Module and class of every logger, by its name in ``--track.loggers``.

To add a logger, add a line here."""


def make_logger(name: str, run: RunInfo) -> Logger:
    """Creates a logger by its name."""
    module, _, kind = LOGGERS[name].partition(":")
    logger: Logger = getattr(import_module(module, __name__), kind)(run)
    return logger
