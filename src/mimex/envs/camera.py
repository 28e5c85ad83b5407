"""Renders images of all simulations, with one small OpenGL context per thread."""

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

Image = NDArray[np.uint8]

# The fields that MuJoCo renders from. Only these are copied from each simulation.
_POSES = ("geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
_DECORATION = ("mjRND_SHADOW", "mjRND_REFLECTION", "mjRND_SKYBOX", "mjRND_HAZE")
_MAX_GEOMS = 500  # the scenes have about 50


class GraphicsError(RuntimeError):
    """No OpenGL context could be created."""


class Camera:
    """Renders one camera in any of the engine's simulations.

    Each worker thread has its own OpenGL context and renders its share of the simulations, so that
    other users of OpenGL in the process are not affected.

    Args:
        engine: The simulations.
        model: A model of the same scene, compiled for the rendering quality; modified here.
        name: The camera's name in the model.
        size: Height and width of an image (pixels).
        nice: Whether to render shadows and sky.
        channels_first: Images as (3, height, width) instead of (height, width, 3).
        fovy: Vertical field of view (degrees), or None for the model's.
        threads: Number of rendering threads.
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
        self._renderers = [
            worker.submit(_Renderer, model, camera, size, nice).result() for worker in self._workers
        ]
        open_cameras.add(self)

    def render(self, rows: Rows = ALL) -> Image:
        """Return images of the current states of some simulations, (rows, ...)."""
        chosen = np.arange(self._num_envs)[rows]
        height, width = self.size
        images = np.empty((len(chosen), height, width, 3), np.uint8)
        if self.channels_first:
            images = np.empty((len(chosen), 3, height, width), np.uint8)
        # Channels last (rows, height, width, 3) and the top row last, as OpenGL returns them.
        upside_down = (images.transpose(0, 2, 3, 1) if self.channels_first else images)[:, ::-1]
        shares = np.array_split(np.arange(len(chosen)), len(self._renderers))
        poses = {field: to_numpy(values) for field, values in self._poses.items()}
        jobs = [
            worker.submit(renderer.render, poses, chosen[share], upside_down, share)
            for worker, renderer, share in zip(self._workers, self._renderers, shares, strict=True)
            if len(share)
        ]
        for job in jobs:
            job.result()
        return images

    def close(self) -> None:
        """Free the contexts. The camera cannot be used afterwards."""
        for worker, renderer in zip(self._workers, self._renderers, strict=True):
            try:
                worker.submit(renderer.free).result()
            except RuntimeError:  # the interpreter is exiting and has stopped the worker
                renderer.free()
            worker.shutdown()
        self._workers, self._renderers = [], []


class _Renderer:
    """One OpenGL context, used only by the thread that created it."""

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

    def render(
        self,
        poses: dict[str, NDArray[Any]],
        sources: Sequence[int] | NDArray[np.intp],
        images: Image,
        targets: NDArray[np.intp],
    ) -> None:
        """Render the simulations `sources` into images[targets], (height, width, 3) each."""
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
            images[target] = self._buffer

    def free(self) -> None:
        """Free the context."""
        self._context.free()
        self._gl.free()


class _Closes(Protocol):
    def close(self) -> None: ...


open_cameras: weakref.WeakSet[_Closes] = weakref.WeakSet()
"""Everything that holds a context; closed before the interpreter exits."""


def _close_all() -> None:
    for camera in list(open_cameras):
        camera.close()


def gl_context(width: int, height: int, helpers: int = 0) -> Any:
    """Return an off-screen context: EGL on Linux unless MUJOCO_GL names another backend.

    Args:
        width: Width of the buffer (pixels).
        height: Height of the buffer (pixels).
        helpers: Additional threads of Mesa's software rasterizer. Zero is fastest for images this
            small without shadows. Only the first context of the process counts: Mesa reads the
            variable when its library is loaded.
    """
    os.environ.setdefault("LP_NUM_THREADS", str(helpers))
    backend = os.environ.get("MUJOCO_GL", "").lower()
    try:
        if platform.system() == "Linux" and backend in ("", "egl"):
            from mujoco.egl import GLContext
        else:
            from mujoco import GLContext
        context = GLContext(width, height)
    except Exception as error:  # each backend has its own exceptions, some plain Exception
        raise GraphicsError(
            f"no off-screen OpenGL context ({type(error).__name__}: {error}). On Debian or Ubuntu: "
            "apt-get install libegl1 libgl1-mesa-dri (or libosmesa6, with MUJOCO_GL=osmesa). "
            'Without graphics, use observation="oracle", "robot" or "state", and render_mode=None.'
        ) from error
    # Registered after the backend's exit hook, so it runs before the display is closed.
    atexit.unregister(_close_all)
    atexit.register(_close_all)
    return context
