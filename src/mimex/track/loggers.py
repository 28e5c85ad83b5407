"""Loggers: TensorBoard, Weights & Biases, Trackio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from mimex.extras import optional_import
from mimex.types import Metrics


@dataclass(frozen=True)
class RunInfo:
    """The run that a logger is created for."""

    folder: Path
    name: str  # unique within the project
    project: str  # name on a server
    step: int  # that the run resumes from; 0 for a new run
    config: Mapping[str, Any]  # nested settings of the run


class Logger(Protocol):
    """Writes rows of metrics. Those in ``LOGGERS`` are constructed from a ``RunInfo``."""

    def write(self, step: int, metrics: Metrics) -> None:
        """Logs the metrics of a step."""

    def close(self) -> None:
        """Flushes and closes the logger."""


class Loggers(ExitStack):
    """Passes every row of metrics to several loggers; closes them at the end of a block."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        super().__init__()
        self.loggers = tuple(loggers)
        for logger in self.loggers:
            self.callback(logger.close)

    def log(self, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Logs metrics by name, such as ``train/success``; values may be arrays of one element."""
        if "step" in metrics:
            raise ValueError("metrics has the reserved name 'step': leave it out.")
        row = {name: float(value) for name, value in metrics.items()}
        for logger in self.loggers:
            logger.write(step, row)


class TensorBoard:
    """Writes event files to ``tensorboard``; a resumed run discards later steps in older files."""

    def __init__(self, run: RunInfo) -> None:
        with optional_import("--track.loggers tensorboard"):
            writer = import_module("torch.utils.tensorboard").SummaryWriter
        purge_step = run.step + 1 if run.step else 0
        self._writer = writer(log_dir=str(run.folder / "tensorboard"), purge_step=purge_step)

    def write(self, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    """Logs to Weights & Biases; an existing run of the same name is resumed."""

    def __init__(self, run: RunInfo) -> None:
        self._run = _init("wandb", run, id=run.name)

    def write(self, step: int, metrics: Metrics) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio(WandB):
    """Logs to Trackio, which has the interface of Weights & Biases."""

    def __init__(self, run: RunInfo) -> None:
        self._run = _init("trackio", run)


def _init(service: str, run: RunInfo, **identity: str) -> Any:
    with optional_import(f"--track.loggers {service}"):
        module = import_module(service)
    return module.init(
        project=run.project, name=run.name, config=dict(run.config), resume="allow", **identity
    )
