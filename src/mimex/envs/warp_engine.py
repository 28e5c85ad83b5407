"""MuJoCo Warp: N simulations on a GPU (or on Warp's CPU device), as PyTorch's tensors.

Imported only when chosen. Tensors and simulations share memory, so nothing is copied between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from mimex.envs.engine import ALL, Engine, Rows

try:
    import mujoco_warp
    import warp
except ImportError as error:
    raise ImportError(
        f"engine is 'warp', but {error.name} is not installed; pip install 'mimex[warp]'"
    ) from error

ROWS = 12
"""Room for rows of constraints, a degree of freedom; blind motion needed 7 at most."""

CONTACTS = 4
"""Room for contacts, a degree of freedom, on the average of simulations; each makes three rows."""

# What mjSTATE_INTEGRATION consists of, in its order; plugins have no place in these scenes.
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
        num_envs: N.
        substeps: Simulation steps per control step.
        device: Warp's name of the device; by default PyTorch's GPU, which is another one in every
            process of a run, and without one the CPU.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, substeps: int = 1, device: str | None = None
    ) -> None:
        warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)  # not every kernel
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
        self._model.opt.warn_overflow = 0  # a full buffer makes the step a failure instead
        # By default the many contacts of a box that lies askew on another are cut down to one.
        self._model.opt.disableflags |= int(mujoco_warp.DisableBit.NATIVECCD)
        if self._device.is_cuda:  # elsewhere everything has its order anyway
            self._model.opt.deterministic = int(mujoco_warp.DeterminismType.ALL)
        self.qpos, self.qvel, self.ctrl = (self.field(name) for name in ("qpos", "qvel", "ctrl"))
        self._mocap_pos, self._site_xpos = self.field("mocap_pos"), self.field("site_xpos")
        self._sensordata, self._overflow = self.field("sensordata"), self.field("overflow")
        self._parts = [self.field(name).view(num_envs, -1) for name in _STATE]  # (N, n), live
        self._sizes = [part.shape[1] for part in self._parts]
        self._check_state(self.state(), mujoco.mj_stateSize(model, _INTEGRATION))
        self._before = self._state()
        self._defaults = self._before[0].clone()
        # Replayed without Python's part in it: on Warp's CPU device four times as fast.
        self._stepping = self._captured(self._substeps)
        self._following = self._captured(self._kinematics)
        self.reset(np.arange(num_envs, dtype=np.int32))
        self.refresh()

    def array(self, values: Any) -> Any:
        return torch.as_tensor(values, dtype=torch.float32, device=self._torch_device)

    def _index(self, numbers: NDArray[np.intp]) -> Any:
        return torch.as_tensor(numbers, device=self._torch_device)

    def field(self, name: str) -> Any:
        view = warp.to_torch(getattr(self._data, name))
        return view.flatten(2) if view.ndim == 4 else view  # matrices have 9 numbers in MjData

    def step(self, targets: Any) -> Any:
        torch.cat(self._parts, 1, out=self._before)
        self.ctrl[:] = targets
        self._overflow.zero_()
        self._launch(self._stepping)
        return self._astray() | ((self._overflow & _FULL) != 0)

    def reset(self, rows: NDArray[np.int32]) -> None:
        self._write(self._defaults.expand(len(rows), -1), rows)

    def refresh(self, rows: NDArray[np.int32] | None = None) -> None:
        self._launch(self._following)

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

    # Below here it is Warp's world.

    def _substeps(self) -> None:
        model, data = self._model, self._data
        for _ in range(self.substeps):
            mujoco_warp.step1(model, data)
            # MuJoCo Warp 4.0 reads rows that have no room, past the end, where bodies float freely.
            rows = [data.nefc, data.njmax, data.overflow]
            warp.launch(_cut_rows, self.num_envs, rows)
            mujoco_warp.step2(model, data)
        self._kinematics()

    def _kinematics(self) -> None:
        """Bring what follows from positions alone, for tasks and cameras, to the state as it is."""
        mujoco_warp.kinematics(self._model, self._data)
        mujoco_warp.camlight(self._model, self._data)

    def _captured(self, work: Callable[[], None]) -> Any:
        """Return work as a graph to launch; doing it once compiles its kernels."""
        with warp.ScopedDevice(self._device):
            work()
            with warp.ScopedCapture() as capture:
                work()
            warp.synchronize_device()
        return capture.graph

    def _launch(self, graph: Any) -> None:
        """Run a graph in its turn among PyTorch's operations."""
        here = self._torch_device
        on_gpu = self._device.is_cuda
        stream = warp.stream_from_torch(torch.cuda.current_stream(here)) if on_gpu else None
        warp.capture_launch(graph, stream=stream)

    def _state(self) -> torch.Tensor:
        return torch.cat(self._parts, 1)

    def _write(self, state: torch.Tensor, rows: Rows) -> None:
        for part, values in zip(self._parts, torch.split(state, self._sizes, 1), strict=True):
            part[rows] = values.to(part.dtype)
