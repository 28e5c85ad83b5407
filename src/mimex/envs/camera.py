"""Pictures of all simulations, through one small OpenGL context per thread."""

from __future__ import annotations

import atexit
import os
import platform
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import to_numpy
from mimex.envs.engine import ALL, Engine, Rows

Picture = NDArray[np.uint8]

# What MuJoCo's scene is drawn from; of each simulation these are copied, and nothing else.
_POSES = ("geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
_DECORATION = ("mjRND_SHADOW", "mjRND_REFLECTION", "mjRND_SKYBOX", "mjRND_HAZE")
_MAX_GEOMS = 500  # the scenes have about 50


class GraphicsError(RuntimeError):
    """There is no OpenGL to draw with."""


class Camera:
    """Draws the view of one camera in any of the engine's simulations.

    Each thread draws its share of the simulations into a context of its own, which stays on a
    thread of its own, so that no other user of OpenGL in the process is disturbed.

    Args:
        engine: The simulations.
        model: A model of the same scene, compiled for the wanted rendering quality; changed here.
        name: The camera's name in the model.
        size: Height and width of a picture (pixels).
        nice: Whether to draw shadows and sky.
        channels_first: Pictures as (3, height, width) instead of (height, width, 3).
        fovy: Vertical field of view (degrees), or None for the model's.
        threads: How many threads draw.
    """

    def __init__(
        self,
        engine: Engine,
        model: mujoco.MjModel,
        name: str,
        size: tuple[int, int],
        *,
        nice: bool = False,
        channels_first: bool = False,
        fovy: float | None = None,
        threads: int = 1,
    ) -> None:
        self.size = size
        self.channels_first = channels_first
        self._num_envs = engine.num_envs
        self._poses = {field: engine.field(field) for field in _POSES}
        model.vis.global_.offheight, model.vis.global_.offwidth = size
        camera = model.camera(name).id
        if fovy is not None:
            model.cam_fovy[camera] = fovy
        self._workers = [ThreadPoolExecutor(1, "mimex-camera") for _ in range(threads)]
        self._painters = [
            worker.submit(_Painter, model, camera, size, nice).result() for worker in self._workers
        ]
        open_cameras.add(self)

    def render(self, rows: Rows = ALL) -> Picture:
        """Return pictures of some simulations as they are now, (rows, ...)."""
        chosen = np.arange(self._num_envs)[rows]
        height, width = self.size
        pictures = np.empty((len(chosen), height, width, 3), np.uint8)
        if self.channels_first:
            pictures = np.empty((len(chosen), 3, height, width), np.uint8)
        # With channels last (rows, height, width, 3) and top row last, as OpenGL delivers them.
        upside_down = (pictures.transpose(0, 2, 3, 1) if self.channels_first else pictures)[:, ::-1]
        shares = np.array_split(np.arange(len(chosen)), len(self._painters))
        poses = {field: to_numpy(values) for field, values in self._poses.items()}
        jobs = [
            worker.submit(painter.paint, poses, chosen[share], upside_down, share)
            for worker, painter, share in zip(self._workers, self._painters, shares, strict=True)
            if len(share)
        ]
        for job in jobs:
            job.result()
        return pictures

    def close(self) -> None:
        """Free the contexts; the camera cannot be used afterwards."""
        for worker, painter in zip(self._workers, self._painters, strict=True):
            try:
                worker.submit(painter.free).result()
            except RuntimeError:  # the interpreter is ending and has ended the worker already
                painter.free()
            worker.shutdown()
        self._workers, self._painters = [], []


class _Painter:
    """One OpenGL context, used by the thread that made it."""

    def __init__(
        self, model: mujoco.MjModel, camera: int, size: tuple[int, int], nice: bool
    ) -> None:
        height, width = size
        self._gl = gl_context(width, height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._model, self._data = model, mujoco.MjData(model)
        mujoco.mj_forward(model, self._data)
        self._scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        for flag in _DECORATION:
            self._scene.flags[getattr(mujoco.mjtRndFlag, flag).value] = nice
        self._option = mujoco.MjvOption()
        self._option.sitegroup[:] = 0
        self._perturb = mujoco.MjvPerturb()
        self._view = mujoco.MjvCamera()
        self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._view.fixedcamid = camera
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._buffer = np.empty((height, width, 3), np.uint8)

    def paint(
        self,
        poses: dict[str, NDArray[Any]],
        sources: Sequence[int] | NDArray[np.intp],
        pictures: Picture,
        targets: NDArray[np.intp],
    ) -> None:
        """Draw the simulations `sources` into pictures[targets], (height, width, 3) each."""
        for source, target in zip(sources, targets, strict=True):
            for field, values in poses.items():
                getattr(self._data, field)[:] = values[source]
            mujoco.mjv_updateScene(
                self._model,
                self._data,
                self._option,
                self._perturb,
                self._view,
                mujoco.mjtCatBit.mjCAT_ALL.value,
                self._scene,
            )
            mujoco.mjr_render(self._rect, self._scene, self._context)
            mujoco.mjr_readPixels(self._buffer, None, self._rect, self._context)
            pictures[target] = self._buffer

    def free(self) -> None:
        """Free the context."""
        self._context.free()
        self._gl.free()


class _Closes(Protocol):
    def close(self) -> None: ...


open_cameras: weakref.WeakSet[_Closes] = weakref.WeakSet()
"""Whatever holds a context: closed before the interpreter ends."""


def _close_all() -> None:
    for camera in list(open_cameras):
        camera.close()


def gl_context(width: int, height: int, helpers: int = 0) -> Any:
    """Return an off-screen context: EGL on Linux unless MUJOCO_GL asks for another.

    Args:
        width: Of its buffer (pixels).
        height: Of its buffer (pixels).
        helpers: Threads of Mesa's software rasteriser beside the calling one. None is fastest for
            pictures this small without shadows. The process's first context decides: Mesa reads
            the variable when its library loads.
    """
    os.environ.setdefault("LP_NUM_THREADS", str(helpers))
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    try:
        if platform.system() == "Linux" and wanted in ("", "egl"):
            from mujoco.egl import GLContext
        else:
            from mujoco import GLContext
        context = GLContext(width, height)
    except Exception as error:  # each backend raises its own kind, some of them plain Exception
        raise GraphicsError(
            f"no off-screen OpenGL context ({type(error).__name__}: {error}). On Debian or Ubuntu: "
            "apt-get install libegl1 libgl1-mesa-dri (or libosmesa6, with MUJOCO_GL=osmesa). "
            'Without graphics, use observation="oracle", "robot" or "state", and render_mode=None.'
        ) from error
    # Registered after the backend's own exit hook, hence run before it ends the display.
    atexit.unregister(_close_all)
    atexit.register(_close_all)
    return context
