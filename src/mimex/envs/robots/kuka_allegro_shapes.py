"""The links of the KUKA iiwa7 and of the Allegro hand as capsules, cylinders and boxes."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco

from mimex.envs.robots.kuka_allegro_figures import Vector
from mimex.envs.shapes import Colour

_SILVER: Colour = (0.72, 0.73, 0.75, 1.0)
_ORANGE: Colour = (0.95, 0.42, 0.07, 1.0)
_BLACK: Colour = (0.15, 0.15, 0.16, 1.0)
_LIGHT: Colour = (0.86, 0.88, 0.80, 1.0)

_CAPSULE = mujoco.mjtGeom.mjGEOM_CAPSULE
_CYLINDER = mujoco.mjtGeom.mjGEOM_CYLINDER
_BOX = mujoco.mjtGeom.mjGEOM_BOX


@dataclass(frozen=True)
class Shape:
    """One geom in its link's frame, before scaling.

    Attributes:
        kind: Capsule, cylinder or box.
        colour: Red, green, blue, opacity.
        size: Radius of a capsule or cylinder, half sizes of a box (m).
        start: One end of the axis, or the centre of a box (m).
        end: The other end of the axis (m); unused for a box.
        rubber: Whether it is a fingertip's soft skin.
    """

    kind: mujoco.mjtGeom
    colour: Colour
    size: float | Vector
    start: Vector
    end: Vector = (0.0, 0.0, 0.0)
    rubber: bool = False


def _finger_shapes(name: str) -> dict[str, tuple[Shape, ...]]:
    """Return the shapes of a finger's three visible links."""
    return {
        f"{name}_link_1": (Shape(_BOX, _BLACK, (0.0235, 0.0125, 0.0098), (0.0265, 0, 0)),),
        f"{name}_link_2": (Shape(_BOX, _BLACK, (0.0175, 0.0115, 0.0098), (0.021, 0, 0)),),
        f"{name}_link_3": (
            Shape(_CAPSULE, _BLACK, 0.0115, (0, 0, 0), (0.02, 0.003, 0)),
            Shape(_CAPSULE, _LIGHT, 0.0105, (0.024, 0.005, 0), (0.045, 0.01, 0), rubber=True),
        ),
    }


SHAPES: dict[str, tuple[Shape, ...]] = {
    "iiwa7_link_0": (
        Shape(_CYLINDER, _SILVER, 0.105, (-0.01, 0, 0), (-0.01, 0, 0.05)),
        Shape(_CYLINDER, _SILVER, 0.08, (0, 0, 0.05), (0, 0, 0.148)),
    ),
    "iiwa7_link_1": (
        Shape(_CYLINDER, _ORANGE, 0.07, (0, 0, 0), (0, 0, 0.03)),
        Shape(_CAPSULE, _SILVER, 0.069, (0, -0.005, 0.06), (0, -0.01, 0.19)),
    ),
    "iiwa7_link_2": (
        Shape(_CYLINDER, _ORANGE, 0.062, (0, 0, 0.05), (0, 0, 0.088)),
        Shape(_CAPSULE, _SILVER, 0.068, (0, 0, 0.01), (0, 0.15, 0.005)),
    ),
    "iiwa7_link_3": (
        Shape(_CYLINDER, _ORANGE, 0.07, (0, 0, 0), (0, 0, 0.03)),
        Shape(_CAPSULE, _SILVER, 0.066, (0, 0.005, 0.06), (0, 0.01, 0.19)),
    ),
    "iiwa7_link_4": (
        Shape(_CYLINDER, _ORANGE, 0.060, (0, 0, 0.048), (0, 0, 0.084)),
        Shape(_CAPSULE, _SILVER, 0.066, (0, 0, 0.01), (0, 0.15, 0.005)),
    ),
    "iiwa7_link_5": (
        Shape(_CYLINDER, _ORANGE, 0.066, (0, 0, 0), (0, 0, 0.03)),
        Shape(_CAPSULE, _SILVER, 0.058, (0, 0, 0.05), (0, 0.03, 0.1)),
        Shape(_CAPSULE, _SILVER, 0.035, (0, 0.06, 0.09), (0, 0.065, 0.185)),
    ),
    "iiwa7_link_6": (
        Shape(_CYLINDER, _ORANGE, 0.045, (0, 0, -0.045), (0, 0, 0)),
        Shape(_CAPSULE, _SILVER, 0.056, (0, 0, 0.045), (0, 0.02, 0.0607)),
    ),
    "iiwa7_link_7": (Shape(_CYLINDER, _SILVER, 0.044, (0, 0, -0.01), (0, 0, 0.068)),),
    "allegro_mount": (Shape(_CYLINDER, _BLACK, 0.036, (0, 0, -0.002), (0, 0, 0.03)),),
    "palm_link": (
        # From the wrist to the finger roots; its front face is the frame's z = 0.
        Shape(_BOX, _BLACK, (0.0475, 0.0565, 0.0205), (0.002, 0.0088, -0.0205)),
    ),
    **_finger_shapes("index"),
    **_finger_shapes("middle"),
    **_finger_shapes("ring"),
    "thumb_link_1": (Shape(_BOX, _BLACK, (0.0115, 0.0098, 0.0235), (0, 0, 0.0265)),),
    "thumb_link_2": (Shape(_BOX, _BLACK, (0.023, 0.0115, 0.0098), (0.0265, 0, 0)),),
    "thumb_link_3": (
        Shape(_CAPSULE, _BLACK, 0.0120, (0, 0, 0), (0.034, 0.004, 0)),
        Shape(_CAPSULE, _LIGHT, 0.0110, (0.038, 0.005, 0), (0.06, 0.01, 0), rubber=True),
    ),
}
