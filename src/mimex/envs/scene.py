"""The scene around a robot: table, cube, goal, cabinet, light, cameras and physics options.

Positions that change per episode are part of MuJoCo's state, so N simulations share one model and
differ only in their rows of `mujoco.batch`:

- the cube and the loose boxes have free joints (`qpos`: position, then quaternion w x y z);
- the goal and the cabinet are mocap bodies (`mocap_pos`, row `model.body(name).mocapid[0]`). A
  mocap body is static for the physics and may carry the drawer's slide joint. Moving the cabinet
  needs no degree of freedom, no constraint and no copy of the model. `mocap_pos` is part of the
  state that is saved and restored.

When the cabinet is moved, the boxes must be moved with it: see `BOX_OFFSETS`.
"""

from __future__ import annotations

from typing import Literal

import mujoco
import numpy as np

from mimex.envs.catalog import task_class
from mimex.envs.robots.base import Robot
from mimex.envs.shapes import Color, Layer, Vector, box, sphere

Quality = Literal["fast", "nice"]

# Published sizes and positions (m), and the density (kg/m3).
TABLE_CENTER, TABLE_SIZE = (0.5, 0.0, 0.2), (0.6, 1.0, 0.4)
TABLE_HEIGHT = 0.4
CUBE_DENSITY = 1000.0
GOAL_RADIUS = 0.04

_NET_FORCE = 3  # reduction mode of MuJoCo's contact sensor: sum of all contacts

_TABLE: Color = (0.78, 0.63, 0.46, 1.0)
_FLOOR: Color = (0.47, 0.51, 0.56, 1.0)
_CUBE: Color = (0.0, 0.447, 0.741, 1.0)  # published
_GOAL: Color = (0.15, 0.75, 0.25, 1.0)
_SKY = (0.80, 0.85, 0.89)


def build(
    robot: Robot,
    task: str,
    *,
    control_hz: float = 60.0,
    substeps: int = 1,
    quality: Quality = "fast",
) -> mujoco.MjSpec:
    """Build the scene of a task around a robot.

    Args:
        robot: The robot; its position is in its file.
        task: Task kind, for example "Pick".
        control_hz: Control steps per second.
        substeps: Simulation steps per control step.
        quality: Level of detail: "fast" for learning from pixels, "nice" for videos.

    Returns:
        A spec to compile.
    """
    kind = task_class(task)
    spec = robot.load()
    spec.modelname = f"{robot.name}_{task}"
    _set_physics(spec, control_hz, substeps)
    _set_looks(spec, quality)
    _add_surroundings(spec, *kind.view)
    kind.furnish(spec, robot)
    for name in robot.arm_bodies:
        _add_force_sensor(spec, name)
    return spec


def _set_physics(spec: mujoco.MjSpec, control_hz: float, substeps: int) -> None:
    option = spec.option
    option.timestep = 1.0 / (control_hz * substeps)
    # Stable with stiff servos and firm grasps at one simulation step per control step; the other
    # integrators need four. The elliptic cone and impratio keep a held object from creeping.
    option.integrator = mujoco.mjtIntegrator.mjINT_DISCRETE
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10.0


def _set_looks(spec: mujoco.MjSpec, quality: Quality) -> None:
    nice = quality == "nice"
    drawn = spec.visual.quality
    drawn.numslices, drawn.numstacks, drawn.numquads = (28, 14, 4) if nice else (12, 6, 2)
    drawn.offsamples = 4 if nice else 0
    drawn.shadowsize = 2048 if nice else 0
    light = spec.visual.headlight
    light.ambient, light.diffuse, light.specular = (0.35,) * 3, (0.35,) * 3, (0.0,) * 3
    spec.stat.center, spec.stat.extent = (0.6, 0.0, 0.5), 1.0  # m; scales shadows and clipping
    spec.visual.map.znear, spec.visual.map.zfar = 0.005, 30.0
    spec.visual.map.shadowclip = 2.5
    spec.visual.rgba.haze = (*_SKY, 1.0)
    if nice:
        spec.add_texture(
            type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
            rgb1=_SKY,
            rgb2=(0.55, 0.65, 0.75),
            width=64,
            height=384,
        )


def _add_surroundings(spec: mujoco.MjSpec, eye: Vector, target: Vector) -> None:
    world = spec.worldbody
    contype, conaffinity = Layer.FURNITURE.value
    world.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=(15.0, 15.0, 15.0),  # third: grid spacing; 0.1 m makes rendering 8 times slower
        rgba=_FLOOR,
        contype=contype,
        conaffinity=conaffinity,
    )
    world.add_light(
        name="sun",
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=(1.2, -0.9, 2.3),
        dir=(-0.35, 0.55, -1.0),
        diffuse=(0.5,) * 3,
        specular=(0.15,) * 3,
        castshadow=True,
    )
    world.add_camera(name="video", pos=eye, xyaxes=_looking(eye, target), fovy=36.0)


def _looking(eye: Vector, target: Vector) -> list[float]:
    """Return the x and y axes of an upright camera at `eye` looking at `target`."""
    back = np.subtract(eye, target)
    right = np.cross((0.0, 0.0, 1.0), back)
    return [*right, *np.cross(back, right)]


def add_table(spec: mujoco.MjSpec) -> None:
    """Add the table in front of the robot."""
    table = spec.worldbody.add_body(name="table", pos=TABLE_CENTER)
    half = [size / 2 for size in TABLE_SIZE]
    box(table, (0, 0, 0), half, _TABLE, Layer.FURNITURE)


def add_cube(spec: mujoco.MjSpec, size: float) -> None:
    """Add a cube with a free joint on the table."""
    start = (TABLE_CENTER[0], TABLE_CENTER[1], TABLE_HEIGHT + size / 2)
    cube = spec.worldbody.add_body(name="cube", pos=start)
    cube.add_freejoint(name="cube")
    box(cube, (0, 0, 0), (size / 2,) * 3, _CUBE, Layer.OBJECT).density = CUBE_DENSITY
    cube.add_site(name="cube", size=(0.005,) * 3, group=4)


def add_goal(spec: mujoco.MjSpec) -> None:
    """Add the goal marker, a mocap body."""
    goal = spec.worldbody.add_body(name="goal", pos=(0.5, 0.0, 0.7), mocap=True)
    # A geom because not every renderer draws sites.
    sphere(goal, (0, 0, 0), GOAL_RADIUS, _GOAL, Layer.VISUAL)
    goal.add_site(name="goal", size=(0.005,) * 3, group=4)


def _add_force_sensor(spec: mujoco.MjSpec, body: str) -> None:
    """Add `arm_force/<body>`: net contact force on one body (N, 3-vector in world axes)."""
    spec.add_sensor(
        name=f"arm_force/{body}",
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        objname=body,
        intprm=(1 << int(mujoco.mjtConDataField.mjCONDATA_FORCE), _NET_FORCE, 1),
    )
