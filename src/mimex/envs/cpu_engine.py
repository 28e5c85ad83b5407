"""MuJoCo itself: N simulations on threads of this process, as NumPy's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from mujoco import batch
from numpy.typing import NDArray

from mimex.envs.engine import ALL, Array, Engine, Rows

# Position- and velocity-dependent fields describe the state AFTER the step; a persistent batch
# starts the next step from them, so that they cost nothing extra (measured: 59k steps per
# CPU-second against 39k when the stages are recomputed).
_CURRENT = mujoco.mjtStage.mjSTAGE_VEL.value


class CpuEngine(Engine):
    """Steps `num_envs` simulations on `threads` threads, in float64.

    Args:
        model: The compiled model that all simulations share.
        num_envs: N.
        threads: How many threads step.
        substeps: Simulation steps per control step.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, threads: int = 1, substeps: int = 1
    ) -> None:
        super().__init__(model, num_envs)
        self.substeps = substeps
        self._batch = batch.Batch(model, num_envs, threads, persistent=True)
        self.qpos = self._batch.bind("qpos")
        self.qvel = self._batch.bind("qvel")
        self.ctrl = self._batch.bind("ctrl")
        self._mocap_pos = self._batch.bind("mocap_pos")
        self._site_xpos = self._batch.bind("site_xpos")
        self._sensordata = self._batch.bind("sensordata")
        self._warnings: Array = self._batch.warning[:, :, 1]  # (N, kinds) how often each occurred
        self._before: Array = np.empty_like(self._batch.state)
        self._batch.reset(stage=_CURRENT)

    def array(self, values: Any) -> Array:
        return np.asarray(values, np.float64)

    def field(self, name: str) -> Array:
        view: Array = self._batch.bind(name)
        return view

    def step(self, targets: Array) -> NDArray[np.bool_]:
        np.copyto(self._before, self._batch.state)
        warnings_before = self._warnings.sum(axis=1)
        self.ctrl[:] = targets
        raised: Sequence[int] = ()
        try:
            self._batch.step(nstep=self.substeps, stage=_CURRENT)
        except batch.SimulationError as error:
            raised = error.ids
        with np.errstate(over="ignore", invalid="ignore"):
            failed = self._astray()
        failed |= self._warnings.sum(axis=1) != warnings_before
        failed[list(raised)] = True
        return failed

    def reset(self, rows: NDArray[np.int32]) -> None:
        self._batch.reset(rows, stage=mujoco.mjtStage.mjSTAGE_NONE.value)

    def refresh(self, rows: NDArray[np.int32] | None = None) -> None:
        self._batch.forward(rows, stage=_CURRENT)

    def state(self) -> Array:
        rows: Array = self._batch.state.copy()
        return rows

    def state_before(self) -> Array:
        return self._before

    def restore(self, state: NDArray[Any], rows: NDArray[np.int32] | None = None) -> None:
        self._check_state(state, self._batch.state.shape[1])
        selected: Rows = ALL if rows is None else rows
        self._batch.state[selected] = state[selected]
        self.refresh(rows)
