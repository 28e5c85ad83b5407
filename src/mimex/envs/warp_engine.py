"""MuJoCo Warp: N simulations on a GPU (or on Warp's CPU device), as PyTorch tensors.

Imported only for engine="warp". Tensors share memory with the simulations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from mimex.envs.engine import ALL, Engine, Rows
from mimex.extras import optional_import

with optional_import("engine='warp'"):
    import mujoco_warp
    import warp

ROWS = 12
"""Constraint rows per degree of freedom to allocate; random actions needed at most 7."""

CONTACTS = 4
"""Contacts per degree of freedom to allocate, averaged over simulations; each has three rows."""

# The parts of mjSTATE_INTEGRATION in order; these scenes have no plugins.
_STATE = (
    *("time", "qpos", "qvel", "act", "history", "qacc_warmstart", "ctrl", "qfrc_applied"),
    *("xfrc_applied", "eq_active", "mocap_pos", "mocap_quat", "userdata"),
)
_INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION.value
_Overflow = mujoco_warp.OverflowType
_NO_ROOM = warp.constant(int(_Overflow.NEFC))
_FULL = int(
    _Overflow.NEFC
    | _Overflow.NJMAX_NNZ
    | _Overflow.BROADPHASE
    | _Overflow.NARROWPHASE
    | _Overflow.CCD
    | _Overflow.CONTACT_MATCH
)


@warp.kernel  # type: ignore[untyped-decorator]
def _cut_rows(rows: warp.array(dtype=int), room: int, overflow: warp.array(dtype=int)):  # type: ignore[no-untyped-def, valid-type]
    world = warp.tid()
    if rows[world] > room:
        rows[world] = room
        overflow[world] = overflow[world] | _NO_ROOM


class WarpEngine(Engine):
    """Steps `num_envs` simulations together on one device, in float32.

    Args:
        model: The compiled model that all simulations share.
        num_envs: Number of simulations N.
        substeps: Simulation steps per control step.
        device: Warp device name; by default PyTorch's current GPU (each process of a run has its
            own), or the CPU without one.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, substeps: int = 1, device: str | None = None
    ) -> None:
        warp.config.log_level = max(
            warp.config.log_level, warp.LOG_WARNING
        )  # do not log every kernel
        if device is None and torch.cuda.is_available():
            device = f"cuda:{torch.cuda.current_device()}"
        self._device = warp.get_device(device)
        self._torch_device = torch.device(warp.device_to_torch(self._device))
        super().__init__(model, num_envs)
        self.substeps = substeps
        with warp.ScopedDevice(self._device):
            self._model = mujoco_warp.put_model(model)
            self._data = mujoco_warp.make_data(
                model, nworld=num_envs, nconmax=CONTACTS * model.nv, njmax=ROWS * model.nv
            )
        self._model.opt.warn_overflow = 0  # a full buffer marks the step as failed instead
        # By default the contacts of a box lying at an angle on another are reduced to one.
        self._model.opt.disableflags |= int(mujoco_warp.DisableBit.NATIVECCD)
        if self._device.is_cuda:  # on the CPU the order is fixed anyway
            self._model.opt.deterministic = int(mujoco_warp.DeterminismType.ALL)
        self.qpos, self.qvel, self.ctrl = (self.field(name) for name in ("qpos", "qvel", "ctrl"))
        self._mocap_pos, self._site_xpos = self.field("mocap_pos"), self.field("site_xpos")
        self._sensordata, self._overflow = self.field("sensordata"), self.field("overflow")
        self._parts = [self.field(name).view(num_envs, -1) for name in _STATE]  # (N, n), live
        self._sizes = [part.shape[1] for part in self._parts]
        self._check_state(self.state(), mujoco.mj_stateSize(model, _INTEGRATION))
        self._before = self._state()
        self._defaults = self._before[0].clone()
        # Graphs run without Python overhead: four times as fast on Warp's CPU device.
        self._step_graph = self._captured(self._substeps)
        self._kinematics_graph = self._captured(self._kinematics)
        self.reset(np.arange(num_envs, dtype=np.int32))
        self.refresh()

    def array(self, values: Any) -> Any:
        return torch.as_tensor(values, dtype=torch.float32, device=self._torch_device)

    def _index(self, indices: NDArray[np.intp]) -> Any:
        return torch.as_tensor(indices, device=self._torch_device)

    def field(self, name: str) -> Any:
        view = warp.to_torch(getattr(self._data, name))
        return view.flatten(2) if view.ndim == 4 else view  # MjData stores matrices as 9 values

    def step(self, targets: Any) -> Any:
        torch.cat(self._parts, 1, out=self._before)
        self.ctrl[:] = targets
        self._overflow.zero_()
        self._launch(self._step_graph)
        return self._diverged() | ((self._overflow & _FULL) != 0)

    def reset(self, rows: NDArray[np.int32]) -> None:
        self._write(self._defaults.expand(len(rows), -1), rows)

    def refresh(self, rows: NDArray[np.int32] | None = None) -> None:
        self._launch(self._kinematics_graph)

    def state(self) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self._state().cpu().numpy()
        return rows

    def state_before(self) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self._before.cpu().numpy()
        return rows

    def restore(self, state: NDArray[Any], rows: NDArray[np.int32] | None = None) -> None:
        self._check_state(state, sum(self._sizes))
        selected: Rows = ALL if rows is None else rows
        self._write(self.array(state[selected]), selected)
        self.refresh(rows)

    def _substeps(self) -> None:
        model, data = self._model, self._data
        for _ in range(self.substeps):
            mujoco_warp.step1(model, data)
            # MuJoCo Warp 4.0 reads constraint rows past the end of the buffer if they overflow it.
            rows = [data.nefc, data.njmax, data.overflow]
            warp.launch(_cut_rows, self.num_envs, rows)
            mujoco_warp.step2(model, data)
        self._kinematics()

    def _kinematics(self) -> None:
        """Update the quantities that depend on positions only, for tasks and cameras."""
        mujoco_warp.kinematics(self._model, self._data)
        mujoco_warp.camlight(self._model, self._data)

    def _captured(self, work: Callable[[], None]) -> Any:
        """Capture work as a graph; the first call compiles its kernels."""
        with warp.ScopedDevice(self._device):
            work()
            with warp.ScopedCapture() as capture:
                work()
            warp.synchronize_device()
        return capture.graph

    def _launch(self, graph: Any) -> None:
        """Launch a graph in order with PyTorch's operations."""
        here = self._torch_device
        on_gpu = self._device.is_cuda
        stream = warp.stream_from_torch(torch.cuda.current_stream(here)) if on_gpu else None
        warp.capture_launch(graph, stream=stream)

    def _state(self) -> torch.Tensor:
        return torch.cat(self._parts, 1)

    def _write(self, state: torch.Tensor, rows: Rows) -> None:
        for part, values in zip(self._parts, torch.split(state, self._sizes, 1), strict=True):
            part[rows] = values.to(part.dtype)
