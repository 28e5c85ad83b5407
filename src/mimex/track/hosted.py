"""Weights & Biases and Trackio, which have the same interface."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mimex.extras import optional_import
from mimex.track.sinks import RunInfo
from mimex.types import Metrics


class WandB:
    """Logs to Weights & Biases.

    Args:
        run: The run; one of the same name is continued.
    """

    def __init__(self, run: RunInfo) -> None:
        self._run = _started("wandb", run, id=run.name)

    def write(self, step: int, metrics: Metrics) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio(WandB):
    """Logs to Trackio.

    Args:
        run: The run; one of the same name is continued.
    """

    def __init__(self, run: RunInfo) -> None:
        self._run = _started("trackio", run)


def _started(service: str, run: RunInfo, **identity: str) -> Any:
    with optional_import(f"--track.loggers {service}"):
        module = import_module(service)
    return module.init(
        project=run.project, name=run.name, config=dict(run.config), resume="allow", **identity
    )
