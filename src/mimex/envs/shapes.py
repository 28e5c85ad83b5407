"""Primitive geoms, and who may touch whom, for robots and scenes alike."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import mujoco

Colour = tuple[float, float, float, float]
Vector = Sequence[float]


class Layer(Enum):
    """What a geom may touch, as MuJoCo's pair (contype, conaffinity).

    Two geoms touch if the contype of one meets the conaffinity of the other. So robots touch
    objects and furniture but not themselves (a hand that must may add a bit of its own, from 8
    up), objects touch everything, and furniture (floor, table, cabinet and its drawer) does not
    touch furniture. A `LOOKS` geom touches nothing.
    """

    LOOKS = (0, 0)
    ROBOT = (1, 2 | 4)
    OBJECT = (2, 1 | 2 | 4)
    FURNITURE = (4, 1 | 2)


def box(
    body: mujoco.MjsBody, pos: Vector, half: Vector, colour: Colour, layer: Layer
) -> mujoco.MjsGeom:
    """Add a box given by its centre and half sizes (m)."""
    return _add(body, mujoco.mjtGeom.mjGEOM_BOX, colour, layer, pos=pos, size=half)


def sphere(
    body: mujoco.MjsBody, pos: Vector, radius: float, colour: Colour, layer: Layer
) -> mujoco.MjsGeom:
    """Add a sphere given by its centre and radius (m)."""
    size = (radius, 0.0, 0.0)
    return _add(body, mujoco.mjtGeom.mjGEOM_SPHERE, colour, layer, pos=pos, size=size)


def capsule(
    body: mujoco.MjsBody, start: Vector, end: Vector, radius: float, colour: Colour, layer: Layer
) -> mujoco.MjsGeom:
    """Add a capsule whose two half spheres are centred on start and end."""
    ends, size = (*start, *end), (radius, 0.0, 0.0)
    return _add(body, mujoco.mjtGeom.mjGEOM_CAPSULE, colour, layer, fromto=ends, size=size)


def cylinder(
    body: mujoco.MjsBody, start: Vector, end: Vector, radius: float, colour: Colour, layer: Layer
) -> mujoco.MjsGeom:
    """Add a cylinder whose flat faces are centred on start and end."""
    ends, size = (*start, *end), (radius, 0.0, 0.0)
    return _add(body, mujoco.mjtGeom.mjGEOM_CYLINDER, colour, layer, fromto=ends, size=size)


def _add(
    body: mujoco.MjsBody,
    kind: mujoco.mjtGeom,
    colour: Colour,
    layer: Layer,
    **place: Vector,
) -> mujoco.MjsGeom:
    contype, conaffinity = layer.value
    geom = body.add_geom(type=kind, rgba=colour, contype=contype, conaffinity=conaffinity, **place)
    if layer is Layer.LOOKS:
        geom.density = 0.0  # what only looks must not weigh
    return geom
