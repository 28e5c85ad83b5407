"""The cabinet: a shell, a drawer on a slide joint with a handle, and loose boxes in the drawer.

The cabinet is a mocap body (see scene.py) whose position is drawn for each episode. The boxes must
be placed with it, at `BOX_OFFSETS` from the drawer's frame.
"""

from __future__ import annotations

import mujoco

from mimex.envs.shapes import Color, Layer, box, capsule, cylinder

# Published sizes and positions (m), and the density (kg/m3).
CABINET_CENTER = (0.05, 0.0, 0.45)
DRAWER_IN_CABINET = (0.0515, 0.0, 0.3172)
HANDLE_IN_DRAWER = (0.305, 0.0, 0.01)
DRAWER_TRAVEL, DRAWER_DAMPING = 0.4, 10.0  # m, N s/m
BOX_SIZE, BOX_DENSITY = 0.08, 400.0

# Our choice (m): the cabinet's shell. At its lowest position it stands on the floor.
_SHELL = (0.3, 0.32, 0.4)  # half sizes
_BAY_FLOOR = 0.235  # height above the cabinet's center where the drawer's bay begins
_BOARD = 0.01  # half thickness
_DRAWER_BACK, _DRAWER_FRONT = -0.32, 0.2565  # along x in the drawer's frame
_DRAWER_SIDE, _DRAWER_FLOOR, _DRAWER_RIM = 0.285, -0.055, 0.03
_FRONT = (0.008, 0.305, 0.0675)  # half sizes of a drawer's front
_WOOD_DENSITY = 500.0  # kg/m3
# A horizontal bar, as wide as a hand and thin enough for the Panda's fingers to grasp.
_BAR_END, _BAR_RADIUS = 0.09, 0.009

# Where the loose boxes rest, relative to the drawer's frame (m).
_REST = _DRAWER_FLOOR + _BOARD + BOX_SIZE / 2
BOX_OFFSETS = tuple((x, y, _REST) for x in (-0.14, 0.1) for y in (-0.13, 0.13))

_PAINT: Color = (0.20, 0.29, 0.37, 1.0)
_WOOD: Color = (0.84, 0.72, 0.55, 1.0)
_STEEL: Color = (0.23, 0.24, 0.27, 1.0)
_BOXES: Color = (0.85, 0.42, 0.22, 1.0)


def add_cabinet(spec: mujoco.MjSpec) -> None:
    """Add the bodies "cabinet", "drawer" and "box0" to "box3", and the site "handle"."""
    cabinet = spec.worldbody.add_body(name="cabinet", pos=CABINET_CENTER, mocap=True)
    _shape_cabinet(cabinet)
    drawer = cabinet.add_body(name="drawer", pos=DRAWER_IN_CABINET)
    drawer.add_joint(
        name="drawer",
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=(1, 0, 0),
        range=(0.0, DRAWER_TRAVEL),
        damping=DRAWER_DAMPING,
    )
    _shape_drawer(drawer)
    drawer.add_site(name="handle", pos=HANDLE_IN_DRAWER, size=(0.005,) * 3, group=4)
    for index, offset in enumerate(BOX_OFFSETS):
        start = [sum(p) for p in zip(CABINET_CENTER, DRAWER_IN_CABINET, offset, strict=True)]
        loose = spec.worldbody.add_body(name=f"box{index}", pos=start)
        loose.add_freejoint(name=f"box{index}")
        half = (BOX_SIZE / 2,) * 3
        box(loose, (0, 0, 0), half, _BOXES, Layer.OBJECT).density = BOX_DENSITY


def _shape_cabinet(cabinet: mujoco.MjsBody) -> None:
    depth, width, height = _SHELL
    layer = Layer.FURNITURE
    lower = (_BAY_FLOOR + height) / 2  # half height of the solid part below the drawer
    box(cabinet, (0, 0, lower - height), (depth, width, lower), _PAINT, layer)
    bay, middle = (height - _BAY_FLOOR) / 2, (height + _BAY_FLOOR) / 2
    for side in (-1, 1):
        edge = side * (width - _BOARD)
        box(cabinet, (0, edge, middle), (depth, _BOARD, bay), _PAINT, layer)
    box(cabinet, (_BOARD - depth, 0, middle), (_BOARD, width, bay), _PAINT, layer)
    box(cabinet, (0, 0, height - _BOARD), (depth, width, _BOARD), _PAINT, layer)
    # A plinth hides the gap to the floor when the cabinet is higher.
    box(cabinet, (0, 0, -height - 0.05), (depth - 0.03, width - 0.03, 0.05), _STEEL, Layer.VISUAL)
    front_x = DRAWER_IN_CABINET[0] + _DRAWER_FRONT
    bar_x = DRAWER_IN_CABINET[0] + HANDLE_IN_DRAWER[0]
    tall = 0.14
    for z in (0.085, -0.215):
        half = (_FRONT[0], _FRONT[1], tall)
        box(cabinet, (front_x, 0, z), half, _WOOD, Layer.VISUAL)
        _add_handle(cabinet, front_x, bar_x, z + 0.09, Layer.VISUAL)


def _shape_drawer(drawer: mujoco.MjsBody) -> None:
    middle, length = (_DRAWER_BACK + _DRAWER_FRONT) / 2, (_DRAWER_FRONT - _DRAWER_BACK) / 2
    rise, high = (_DRAWER_RIM + _DRAWER_FLOOR) / 2, (_DRAWER_RIM - _DRAWER_FLOOR) / 2
    layer = Layer.FURNITURE
    boards = [
        box(drawer, (middle, 0, _DRAWER_FLOOR), (length, _DRAWER_SIDE, _BOARD), _WOOD, layer),
        box(drawer, (_DRAWER_BACK, 0, rise), (_BOARD, _DRAWER_SIDE, high), _WOOD, layer),
        box(drawer, (_DRAWER_FRONT, 0, 0), _FRONT, _WOOD, layer),
    ]
    for side in (-1, 1):
        center = (middle, side * _DRAWER_SIDE, rise)
        boards.append(box(drawer, center, (length, _BOARD, high), _WOOD, layer))
    for board in boards:
        board.density = _WOOD_DENSITY
    x, _, z = HANDLE_IN_DRAWER
    _add_handle(drawer, _DRAWER_FRONT, x, z, layer)


def _add_handle(body: mujoco.MjsBody, front_x: float, bar_x: float, z: float, layer: Layer) -> None:
    ends = [(bar_x, side * _BAR_END, z) for side in (-1, 1)]
    capsule(body, ends[0], ends[1], _BAR_RADIUS, _STEEL, layer)
    for end in ends:
        cylinder(body, (front_x, *end[1:]), end, _BAR_RADIUS, _STEEL, layer)
