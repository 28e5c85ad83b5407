"""Pictures of dm_control's simulations: its own pixels, faster, or simplified ones, much faster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.camera import gl_context, open_cameras

Picture = NDArray[np.uint8]

_LEFT_OUT = ("mjRND_SHADOW", "mjRND_REFLECTION")
"""What the fast quality does not draw: the shadow's 2,048 x 2,048 map is most of a picture's time,
a reflecting floor draws the scene twice."""

_MAX_GEOMS = 2000  # as dm_control's own cameras; the largest scene has some hundred


class SuiteCamera:
    """Draws what one camera of a suite's task sees.

    dm_control draws into a buffer of 640 x 480 with four samples a pixel, whatever the picture's
    size; this one is as large as the picture. Pixels are the same, bit for bit.

    The context stays on a thread of its own, so that no other user of OpenGL is disturbed. Several
    simulations of one task may share a camera.

    Args:
        model: The task's model.
        camera: The camera's number in it.
        size: Height and width of a picture (pixels).
        fast: Leave out shadows, reflections and the smoothing of edges.
        threads: How many draw.
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
        for flag in _LEFT_OUT if fast else ():
            self._scene.flags[getattr(mujoco.mjtRndFlag, flag).value] = False
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._view = mujoco.MjvCamera()
        self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._view.fixedcamid = camera
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._buffer = np.empty((height, width, 3), np.uint8)
        self._terrain = model.hfield_data.copy()  # what the context has of it

    def picture(self, model: mujoco.MjModel, data: mujoco.MjData) -> Picture:
        """Return a picture (height, width, 3) of a simulation as it is now."""
        if self._worker is None:
            raise RuntimeError("the camera was closed: make the environment anew")
        return self._worker.submit(self._paint, model, data).result()

    def _paint(self, model: mujoco.MjModel, data: mujoco.MjData) -> Picture:
        everything: Any = mujoco.mjtCatBit.mjCAT_ALL.value
        if not np.array_equal(model.hfield_data, self._terrain):  # a task has drawn a new one
            for field in range(model.nhfield):
                mujoco.mjr_uploadHField(model, self._context, field)
            self._terrain = model.hfield_data.copy()
        mujoco.mjv_updateScene(
            model, data, self._option, self._perturb, self._view, everything, self._scene
        )
        mujoco.mjr_render(self._rect, self._scene, self._context)
        mujoco.mjr_readPixels(self._buffer, None, self._rect, self._context)
        return self._buffer[::-1].copy()  # OpenGL's first row is the lowest

    def close(self) -> None:
        """Free the context; doing it again changes nothing."""
        if self._worker is None:
            return
        try:
            self._worker.submit(self._free).result()
        except RuntimeError:  # the interpreter is ending and has ended the worker already
            self._free()
        self._worker.shutdown()
        self._worker = None

    def _free(self) -> None:
        self._context.free()
        self._gl.free()
