"""Primitive geoms and contact layers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import mujoco

Color = tuple[float, float, float, float]
Vector = Sequence[float]


class Layer(Enum):
    """What a geom collides with, as MuJoCo's pair (contype, conaffinity).

    Two geoms collide if the contype of one shares a bit with the conaffinity of the other. Robots
    collide with objects and furniture but not with themselves (a hand may add bits from 8 up, see
    robots/kuka_allegro.xml), objects with everything, and furniture (floor, table, cabinet and
    drawer) not with furniture. A `VISUAL` geom collides with nothing.
    """

    VISUAL = (0, 0)
    ROBOT = (1, 2 | 4)
    OBJECT = (2, 1 | 2 | 4)
    FURNITURE = (4, 1 | 2)


def box(
    body: mujoco.MjsBody, pos: Vector, half: Vector, color: Color, layer: Layer
) -> mujoco.MjsGeom:
    """Add a box given by its center and half sizes (m)."""
    return _add(body, mujoco.mjtGeom.mjGEOM_BOX, color, layer, pos=pos, size=half)


def sphere(
    body: mujoco.MjsBody, pos: Vector, radius: float, color: Color, layer: Layer
) -> mujoco.MjsGeom:
    """Add a sphere given by its center and radius (m)."""
    size = (radius, 0.0, 0.0)
    return _add(body, mujoco.mjtGeom.mjGEOM_SPHERE, color, layer, pos=pos, size=size)


def capsule(
    body: mujoco.MjsBody, start: Vector, end: Vector, radius: float, color: Color, layer: Layer
) -> mujoco.MjsGeom:
    """Add a capsule with its half spheres centered on start and end."""
    ends, size = (*start, *end), (radius, 0.0, 0.0)
    return _add(body, mujoco.mjtGeom.mjGEOM_CAPSULE, color, layer, fromto=ends, size=size)


def cylinder(
    body: mujoco.MjsBody, start: Vector, end: Vector, radius: float, color: Color, layer: Layer
) -> mujoco.MjsGeom:
    """Add a cylinder with its flat faces centered on start and end."""
    ends, size = (*start, *end), (radius, 0.0, 0.0)
    return _add(body, mujoco.mjtGeom.mjGEOM_CYLINDER, color, layer, fromto=ends, size=size)


def _add(
    body: mujoco.MjsBody,
    kind: mujoco.mjtGeom,
    color: Color,
    layer: Layer,
    **pose: Vector,
) -> mujoco.MjsGeom:
    contype, conaffinity = layer.value
    geom = body.add_geom(type=kind, rgba=color, contype=contype, conaffinity=conaffinity, **pose)
    if layer is Layer.VISUAL:
        geom.density = 0.0  # a visual geom must not add mass
    return geom
