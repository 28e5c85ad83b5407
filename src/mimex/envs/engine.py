"""What tasks ask of a simulator, N simulations of one model as arrays; and MuJoCo itself.

Task code reads and writes arrays whose first axis is the environment, and never meets a
simulator's own data structure. The arrays are NumPy's, or PyTorch's tensors where the simulations
run on another device (`warp_engine.py`); `mimex.envs.arrays` says how one code serves both.
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
"""Of the engine that runs on the CPU; others hand out tensors that the same code works on."""

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


class Engine(ABC):
    """Steps `num_envs` simulations of one model.

    Attributes:
        model: The compiled model that all simulations share.
        num_envs: N.
        qpos: Generalised positions (N, nq), a live view: writing it writes the state.
        qvel: Generalised velocities (N, nv), likewise.
        ctrl: Actuator targets (N, nu), likewise.
    """

    qpos: Array
    qvel: Array
    ctrl: Array
    _mocap_pos: Array  # (N, mocap bodies, 3), live
    _site_xpos: Array  # (N, sites, 3), live
    _sensordata: Array  # (N, numbers), live

    def __init__(self, model: mujoco.MjModel, num_envs: int) -> None:
        self.model = model
        self.num_envs = num_envs
        self._arm_force_columns = self._index(_sensor_columns(model, ARM_FORCE))

    # Names to arrays.

    @abstractmethod
    def array(self, values: Any) -> Array:
        """Return numbers as this engine's arrays are: of their kind and precision, beside them."""

    @abstractmethod
    def field(self, name: str) -> Array:
        """Return a live view of any field of MjData, (N, ...), for example "geom_xpos"."""

    def site(self, name: str) -> Array:
        """Return the position of a site in the world (m), a live view (N, 3)."""
        return self._site_xpos[:, self.model.site(name).id]

    def site_ids(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Return the numbers by which `sites` finds sites, (len(names),)."""
        return self._index(np.array([self.model.site(name).id for name in names], np.intp))

    def _index(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return what columns of this engine's arrays are chosen by."""
        return numbers

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
        xp = namespace(forces)
        squared: Array = xp.einsum("nlk,nlk->nl", forces, forces)
        strongest: Array = xp.amax(squared, 1) if squared.shape[1] else squared.sum(1)
        force: Array = xp.sqrt(strongest)
        return force

    # Time.

    @abstractmethod
    def step(self, targets: Array) -> NDArray[np.bool_]:
        """Hold the joint targets (N, nu) for one control step; return which simulations failed.

        A failure is an error or a new warning of the simulator (bad acceleration, full contact
        buffer), a number that is not finite, or a speed beyond `SPEED_LIMIT`.
        """

    @abstractmethod
    def reset(self, rows: NDArray[np.int32]) -> None:
        """Put some simulations to the model's defaults; write their state, then call `refresh`."""

    @abstractmethod
    def refresh(self, rows: NDArray[np.int32] | None = None) -> None:
        """Compute sites and the like from the state as it is now, after writing the state."""

    def _astray(self) -> NDArray[np.bool_]:
        """Return which simulations are too fast or have numbers that are not finite, (N,)."""
        xp = namespace(self.qvel)
        # Negated, so that a NaN counts: every comparison with it is false.
        too_fast = ~(xp.einsum("nv,nv->n", self.qvel, self.qvel) <= SPEED_LIMIT**2)
        not_finite = ~(xp.einsum("nq,nq->n", self.qpos, self.qpos) < np.inf)
        astray: NDArray[np.bool_] = too_fast | not_finite
        return astray

    # State: NumPy's on every engine, in the order of MuJoCo's mjSTATE_INTEGRATION.

    @abstractmethod
    def state(self) -> NDArray[Any]:
        """Return everything a simulation needs to continue, a copy (N, numbers)."""

    @abstractmethod
    def state_before(self) -> NDArray[Any]:
        """Return the state from which the last step started, (N, numbers)."""

    @abstractmethod
    def restore(self, state: NDArray[Any], rows: NDArray[np.int32] | None = None) -> None:
        """Continue from a state that `state` or `state_before` gave.

        On the kind of engine that gave it this is bit for bit; another takes the same numbers in
        its own precision.
        """

    def _check_state(self, state: NDArray[Any], numbers: int) -> None:
        if state.shape != (self.num_envs, numbers):
            raise ValueError(
                f"state has shape {state.shape}, but this engine's is {(self.num_envs, numbers)}; "
                "restore into an environment of the same task and number of environments"
            )


class CpuEngine(Engine):
    """MuJoCo itself: steps `num_envs` simulations on `threads` threads of this process, in float64.

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
