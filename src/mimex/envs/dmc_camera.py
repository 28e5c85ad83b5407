"""Renders dm_control simulations: identical pixels, or simplified and much faster ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.camera import gl_context, open_cameras

Image = NDArray[np.uint8]

_DISABLED_IF_FAST = ("mjRND_SHADOW", "mjRND_REFLECTION")
"""Disabled in fast quality: the 2,048 x 2,048 shadow map takes most of the time, and a reflecting
floor renders the scene twice."""

_MAX_GEOMS = 2000  # as in dm_control; the largest scene has a few hundred


class SuiteCamera:
    """Renders one camera of a dm_control task.

    dm_control always renders into a buffer of 640 x 480 with four samples per pixel. Here the
    buffer has the size of the image; the pixels are identical.

    The context has its own thread, so that other users of OpenGL are not affected. Several
    simulations of one task may share a camera.

    Args:
        model: The task's model.
        camera: Index of the camera.
        size: Height and width of an image (pixels).
        fast: Disable shadows, reflections and anti-aliasing.
        threads: Number of rendering threads.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        camera: int,
        size: tuple[int, int],
        *,
        fast: bool = False,
        threads: int = 1,
    ) -> None:
        self._worker: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "mimex-suite-camera")
        try:
            self._worker.submit(self._open, model, camera, size, fast, threads).result()
        except Exception:
            self._worker.shutdown()
            raise
        open_cameras.add(self)

    def _open(
        self, model: mujoco.MjModel, camera: int, size: tuple[int, int], fast: bool, threads: int
    ) -> None:
        height, width = size
        self._gl = gl_context(width, height, helpers=threads if threads > 1 else 0)
        self._gl.make_current()
        visual = model.vis
        before = visual.global_.offwidth, visual.global_.offheight, visual.quality.offsamples
        visual.global_.offwidth, visual.global_.offheight = width, height
        if fast:
            visual.quality.offsamples = 0
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        visual.global_.offwidth, visual.global_.offheight, visual.quality.offsamples = before
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=_MAX_GEOMS)
        for flag in _DISABLED_IF_FAST if fast else ():
            self._scene.flags[getattr(mujoco.mjtRndFlag, flag).value] = False
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._view = mujoco.MjvCamera()
        self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._view.fixedcamid = camera
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._buffer = np.empty((height, width, 3), np.uint8)
        self._terrain = model.hfield_data.copy()  # as uploaded to the context

    def render(self, model: mujoco.MjModel, data: mujoco.MjData) -> Image:
        """Return an image (height, width, 3) of the current state."""
        if self._worker is None:
            raise RuntimeError("the camera is closed; create the environment again")
        return self._worker.submit(self._render, model, data).result()

    def _render(self, model: mujoco.MjModel, data: mujoco.MjData) -> Image:
        all_geoms: Any = mujoco.mjtCatBit.mjCAT_ALL.value
        # A task may have generated new terrain.
        if not np.array_equal(model.hfield_data, self._terrain):
            for field in range(model.nhfield):
                mujoco.mjr_uploadHField(model, self._context, field)
            self._terrain = model.hfield_data.copy()
        mujoco.mjv_updateScene(
            model, data, self._option, self._perturb, self._view, all_geoms, self._scene
        )
        mujoco.mjr_render(self._rect, self._scene, self._context)
        mujoco.mjr_readPixels(self._buffer, None, self._rect, self._context)
        return self._buffer[::-1].copy()  # OpenGL returns the bottom row first

    def close(self) -> None:
        """Free the context; repeated calls have no effect."""
        if self._worker is None:
            return
        try:
            self._worker.submit(self._free).result()
        except RuntimeError:  # the interpreter is exiting and has stopped the worker
            self._free()
        self._worker.shutdown()
        self._worker = None

    def _free(self) -> None:
        self._context.free()
        self._gl.free()
