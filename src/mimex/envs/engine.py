"""The interface between tasks and simulator, N simulations of one model, and its MuJoCo backend.

Task code reads and writes arrays whose first axis is the environment, and does not depend on the
simulator's data structures. The arrays are NumPy arrays, or PyTorch tensors if the simulations run
on another device (`warp_engine.py`); `mimex.envs.arrays` has helpers for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from mujoco import batch
from numpy.typing import NDArray

from mimex.envs.arrays import namespace

Array = NDArray[np.float64]
"""Array of the CPU engine; other engines return tensors."""

Rows = slice | NDArray[np.int32]
"""Selected environments: `ALL`, or sorted indices."""

ALL = slice(None)

ARM_FORCE = "arm_force"
"""Contact sensors on the arm have this name, or names that start with it and a slash."""

SPEED_LIMIT = 1e3
"""Velocities above this (rad/s, m/s) mean that the solver has failed."""

# Position- and velocity-dependent fields describe the state AFTER the step. A persistent batch
# starts the next step from them at no extra cost (measured: 59k steps per CPU-second, 39k when the
# stages are recomputed).
_CURRENT = mujoco.mjtStage.mjSTAGE_VEL.value


class Engine(ABC):
    """Steps `num_envs` simulations of one model.

    Attributes:
        model: The compiled model that all simulations share.
        num_envs: Number of simulations N.
        qpos: Generalized positions (N, nq), a live view: writing to it changes the state.
        qvel: Generalized velocities (N, nv), a live view.
        ctrl: Actuator targets (N, nu), a live view.
    """

    qpos: Array
    qvel: Array
    ctrl: Array
    _mocap_pos: Array  # (N, mocap bodies, 3), live
    _site_xpos: Array  # (N, sites, 3), live
    _sensordata: Array  # (N, nsensordata), live

    def __init__(self, model: mujoco.MjModel, num_envs: int) -> None:
        self.model = model
        self.num_envs = num_envs
        self._arm_force_columns = self._index(_sensor_columns(model, ARM_FORCE))

    # Arrays by name.

    @abstractmethod
    def array(self, values: Any) -> Array:
        """Convert values to this engine's array type, precision and device."""

    @abstractmethod
    def field(self, name: str) -> Array:
        """Return a live view (N, ...) of a field of MjData, for example "geom_xpos"."""

    def site(self, name: str) -> Array:
        """Return the world position of a site (m), a live view (N, 3)."""
        return self._site_xpos[:, self.model.site(name).id]

    def site_ids(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Return the site indices that `sites` takes, (len(names),)."""
        return self._index(np.array([self.model.site(name).id for name in names], np.intp))

    def _index(self, indices: NDArray[np.intp]) -> NDArray[np.intp]:
        """Convert indices to the type that indexes this engine's arrays."""
        return indices

    def sites(self, ids: NDArray[np.intp], rows: Rows = ALL) -> Array:
        """Return the positions of several sites (m), a copy (rows, len(ids), 3)."""
        return self._site_xpos[rows][:, ids]

    def mocap(self, name: str) -> Array:
        """Return the position of a mocap body (m), a live view (N, 3)."""
        index = int(self.model.body(name).mocapid[0])
        if index < 0:
            raise ValueError(f"body {name!r} is not a mocap body, so it has no position to set")
        return self._mocap_pos[:, index]

    def joint_columns(self, names: Sequence[str]) -> tuple[slice, slice]:
        """Return the columns of the joints in qpos and in qvel.

        The joints must be consecutive in the model, as those of one robot or object are.
        """
        joints = [self.model.joint(name) for name in names]
        return (
            _span([(int(j.qposadr[0]), j.qpos0.size) for j in joints], names),
            _span([(int(j.dofadr[0]), j.damping.size) for j in joints], names),
        )

    def arm_force(self) -> Array:
        """Return the largest contact force on any arm link in the last substep (newtons), (N,)."""
        forces = self._sensordata[:, self._arm_force_columns]  # (N, links, 3)
        xp = namespace(forces)
        squared: Array = xp.einsum("nlk,nlk->nl", forces, forces)
        strongest: Array = xp.amax(squared, 1) if squared.shape[1] else squared.sum(1)
        force: Array = xp.sqrt(strongest)
        return force

    # Time.

    @abstractmethod
    def step(self, targets: Array) -> NDArray[np.bool_]:
        """Simulate one control step with joint targets (N, nu); return which simulations failed.

        A failure is an error or a new warning of the simulator (bad acceleration, full contact
        buffer), a non-finite value, or a velocity above `SPEED_LIMIT`.
        """

    @abstractmethod
    def reset(self, rows: NDArray[np.int32]) -> None:
        """Reset some simulations to the model's defaults; set their state, then call `refresh`."""

    @abstractmethod
    def refresh(self, rows: NDArray[np.int32] | None = None) -> None:
        """Recompute derived quantities, such as site positions, after the state was changed."""

    def _diverged(self) -> NDArray[np.bool_]:
        """Return which simulations are too fast or have non-finite values, (N,)."""
        xp = namespace(self.qvel)
        # Negated so that NaN counts as diverged: every comparison with it is false.
        too_fast = ~(xp.einsum("nv,nv->n", self.qvel, self.qvel) <= SPEED_LIMIT**2)
        not_finite = ~(xp.einsum("nq,nq->n", self.qpos, self.qpos) < np.inf)
        diverged: NDArray[np.bool_] = too_fast | not_finite
        return diverged

    # State: NumPy arrays on every engine, in the order of MuJoCo's mjSTATE_INTEGRATION.

    @abstractmethod
    def state(self) -> NDArray[Any]:
        """Return a copy of the full physics state, (N, state size)."""

    @abstractmethod
    def state_before(self) -> NDArray[Any]:
        """Return the state before the last step, (N, state size)."""

    @abstractmethod
    def restore(self, state: NDArray[Any], rows: NDArray[np.int32] | None = None) -> None:
        """Restore a state from `state` or `state_before`.

        The same type of engine continues bit for bit; another one rounds to its own precision.
        """

    def _check_state(self, state: NDArray[Any], size: int) -> None:
        if state.shape != (self.num_envs, size):
            raise ValueError(
                f"state has shape {state.shape}, but this engine's is {(self.num_envs, size)}; "
                "restore into an environment of the same task and number of environments"
            )


class CpuEngine(Engine):
    """MuJoCo on the CPU: steps `num_envs` simulations on `threads` threads, in float64.

    Args:
        model: The compiled model that all simulations share.
        num_envs: Number of simulations N.
        threads: Number of threads.
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
        self._warnings: Array = self._batch.warning[:, :, 1]  # (N, warning types) counts
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
            failed = self._diverged()
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


def _span(parts: list[tuple[int, int]], names: Sequence[str]) -> slice:
    """Return the slice that (address, size) parts cover; gaps are an error."""
    start = stop = parts[0][0]
    for address, size in parts:
        if address != stop:
            raise ValueError(f"joints {list(names)} are not consecutive in the model")
        stop = address + size
    return slice(start, stop)


def _sensor_columns(model: mujoco.MjModel, name: str) -> NDArray[np.intp]:
    """Return the columns of the named force sensors in sensordata, (sensors, 3)."""
    sensors = [model.sensor(i) for i in range(model.nsensor)]
    first = [int(s.adr[0]) for s in sensors if s.name.split("/")[0] == name]
    return np.array(first, np.intp)[:, None] + np.arange(3)
