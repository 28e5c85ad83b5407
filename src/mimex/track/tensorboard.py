"""TensorBoard."""

from __future__ import annotations

from mimex.extras import optional_import
from mimex.track.sinks import RunInfo
from mimex.types import Metrics


class TensorBoard:
    """Writes event files to the folder ``tensorboard`` of the run.

    Args:
        run: The run. If it continues, later steps in older files are discarded.
    """

    def __init__(self, run: RunInfo) -> None:
        with optional_import("--track.loggers tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        purge_step = run.step + 1 if run.step else 0
        self._writer = SummaryWriter(log_dir=str(run.folder / "tensorboard"), purge_step=purge_step)

    def write(self, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
