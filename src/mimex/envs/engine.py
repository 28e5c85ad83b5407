"""N MuJoCo simulations of one model as arrays.

Task code reads and writes arrays whose first axis is the environment, and never meets a
simulator's own data structure; an engine on another device has to offer the same few names.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco import batch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = slice | NDArray[np.int32]
"""Which environments: `ALL`, or their sorted indices."""

ALL = slice(None)

ARM_FORCE = "arm_force"
"""Sensors of this name, or whose names start with it and a slash, measure contact on the arm."""

SPEED_LIMIT = 1e3
"""Nothing in these scenes moves this fast (rad/s, m/s) unless the solver failed."""

# Position- and velocity-dependent fields describe the state AFTER the step; a persistent batch
# starts the next step from them, so that they cost nothing extra (measured: 59k steps per
# CPU-second against 39k when the stages are recomputed).
_CURRENT = mujoco.mjtStage.mjSTAGE_VEL.value


class Engine:
    """Steps `num_envs` simulations on `threads` threads of this process.

    Attributes:
        model: The compiled model that all simulations share.
        qpos: Generalised positions (N, nq), a live view: writing it writes the state.
        qvel: Generalised velocities (N, nv), likewise.
        ctrl: Actuator targets (N, nu), likewise.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, threads: int = 1, substeps: int = 1
    ) -> None:
        self.model = model
        self.num_envs = num_envs
        self.threads = threads
        self.substeps = substeps
        self._batch = batch.Batch(model, num_envs, threads, persistent=True)
        self.qpos: Array = self._batch.bind("qpos")
        self.qvel: Array = self._batch.bind("qvel")
        self.ctrl: Array = self._batch.bind("ctrl")
        self._mocap_pos: Array = self._batch.bind("mocap_pos")
        self._site_xpos: Array = self._batch.bind("site_xpos")
        self._sensordata: Array = self._batch.bind("sensordata")
        self._warnings: Array = self._batch.warning[:, :, 1]  # (N, kinds) how often each occurred
        self._before: Array = np.empty_like(self._batch.state)
        self._arm_force_columns = _sensor_columns(model, ARM_FORCE)
        self._batch.reset(stage=_CURRENT)

    # Names to arrays.

    def field(self, name: str) -> Array:
        """Return a live view of any field of MjData, (N, ...), for example "geom_xpos"."""
        view: Array = self._batch.bind(name)
        return view

    def site(self, name: str) -> Array:
        """Return the position of a site in the world (m), a live view (N, 3)."""
        return self._site_xpos[:, self.model.site(name).id]

    def site_ids(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Return the numbers by which `sites` finds sites, (len(names),)."""
        return np.array([self.model.site(name).id for name in names], np.intp)

    def sites(self, ids: NDArray[np.intp], rows: Rows = ALL) -> Array:
        """Return positions of several sites (m), a copy (rows, len(ids), 3)."""
        return self._site_xpos[rows][:, ids]

    def mocap(self, name: str) -> Array:
        """Return the position of a body that is placed, not simulated (m), a live view (N, 3)."""
        index = int(self.model.body(name).mocapid[0])
        if index < 0:
            raise ValueError(f"body {name!r} is not a mocap body, so it has no position to set")
        return self._mocap_pos[:, index]

    def joint_columns(self, names: Sequence[str]) -> tuple[slice, slice]:
        """Return where the joints' positions sit in qpos and their velocities in qvel.

        The joints must follow one another in the model, as those of one robot or object do.
        """
        joints = [self.model.joint(name) for name in names]
        return (
            _span([(int(j.qposadr[0]), j.qpos0.size) for j in joints], names),
            _span([(int(j.dofadr[0]), j.damping.size) for j in joints], names),
        )

    def arm_force(self) -> Array:
        """Return the largest contact force on any arm link in the last substep (N), (N,)."""
        forces = self._sensordata[:, self._arm_force_columns]  # (N, links, 3)
        strongest: Array = np.einsum("nlk,nlk->nl", forces, forces).max(axis=1, initial=0.0)
        return np.sqrt(strongest)

    # Time.

    def step(self, targets: Array) -> NDArray[np.bool_]:
        """Hold the joint targets (N, nu) for one control step; return which simulations failed.

        A failure is an error or a new warning of MuJoCo (bad acceleration, full contact buffer),
        a number that is not finite, or a speed beyond `SPEED_LIMIT`.
        """
        np.copyto(self._before, self._batch.state)
        warnings_before = self._warnings.sum(axis=1)
        self.ctrl[:] = targets
        raised: Sequence[int] = ()
        try:
            self._batch.step(nstep=self.substeps, stage=_CURRENT)
        except batch.SimulationError as error:
            raised = error.ids
        with np.errstate(over="ignore", invalid="ignore"):
            # Negated, so that a NaN counts: every comparison with it is false.
            too_fast = ~(np.einsum("nv,nv->n", self.qvel, self.qvel) <= SPEED_LIMIT**2)
            not_finite = ~(np.einsum("nq,nq->n", self.qpos, self.qpos) < np.inf)
        failed: NDArray[np.bool_] = too_fast | not_finite
        failed |= self._warnings.sum(axis=1) != warnings_before
        failed[list(raised)] = True
        return failed

    def reset(self, rows: NDArray[np.int32]) -> None:
        """Put some simulations to the model's defaults; write their state, then call `refresh`."""
        self._batch.reset(rows, stage=mujoco.mjtStage.mjSTAGE_NONE.value)

    def refresh(self, rows: NDArray[np.int32] | None = None) -> None:
        """Compute sites and the like from the state as it is now, after writing the state."""
        self._batch.forward(rows, stage=_CURRENT)

    # State.

    def state(self) -> Array:
        """Return everything a simulation needs to continue, a copy (N, numbers)."""
        rows: Array = self._batch.state.copy()
        return rows

    def state_before(self) -> Array:
        """Return the state from which the last step started, (N, numbers)."""
        return self._before

    def restore(self, state: Array, rows: NDArray[np.int32] | None = None) -> None:
        """Continue from a state that `state` or `state_before` gave."""
        if state.shape != self._batch.state.shape:
            raise ValueError(
                f"state has shape {state.shape}, but this engine's is {self._batch.state.shape}; "
                "restore into an environment of the same task and number of environments"
            )
        selected: Rows = ALL if rows is None else rows
        self._batch.state[selected] = state[selected]
        self.refresh(rows)


def _span(parts: list[tuple[int, int]], names: Sequence[str]) -> slice:
    """Return the slice that (address, size) parts cover, which must be without gaps."""
    start = stop = parts[0][0]
    for address, size in parts:
        if address != stop:
            raise ValueError(f"joints {list(names)} do not follow one another in the model")
        stop = address + size
    return slice(start, stop)


def _sensor_columns(model: mujoco.MjModel, name: str) -> NDArray[np.intp]:
    """Return the columns of sensordata of the force sensors of a name, (sensors, 3)."""
    sensors = [model.sensor(i) for i in range(model.nsensor)]
    first = [int(s.adr[0]) for s in sensors if s.name.split("/")[0] == name]
    return np.array(first, np.intp)[:, None] + np.arange(3)
