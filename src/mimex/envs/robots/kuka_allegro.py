"""KUKA iiwa7 arm with an Allegro hand, built from published figures and primitive shapes."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from mimex.envs.robots.base import WRIST_FOVY, Robot
from mimex.envs.robots.kuka_allegro_figures import (
    ARM,
    HAND,
    LINKS,
    MOUNT,
    Link,
    Vector,
)
from mimex.envs.robots.kuka_allegro_shapes import SHAPES, Shape
from mimex.envs.shapes import Layer

SCALE = 0.9  # the benchmark shrinks the whole robot; masses follow with its cube
FINGERS = ("index", "middle", "ring", "thumb")
JOINTS = tuple(link.joint for link in LINKS if link.joint is not None)

_HAND_BIT = 8  # contact bit of the hand, which collides with itself (published)

# Published grasp points in the last link, before scaling (m).
_GRASP_POINT: dict[str, Vector] = {
    "index": (0.045, 0.01, 0.0),
    "middle": (0.045, 0.01, 0.0),
    "ring": (0.045, 0.01, 0.0),
    "thumb": (0.06, 0.01, 0.0),
}


@dataclass(frozen=True)
class Drive:
    """Position servo of one joint.

    Attributes:
        stiffness: Torque per error of position (Nm/rad).
        damping: Torque per speed (Nms/rad).
        torque: Largest torque (Nm).
        armature: Inertia of the rotor behind its gear (kg m2).
    """

    stiffness: float
    damping: float
    torque: float
    armature: float


# Arm: stiffness, damping and torque limits are the published ones.
_ARM_TORQUE = (320.0, 320.0, 176.0, 176.0, 110.0, 40.0, 40.0)
_ARM_DRIVES = tuple(
    Drive(stiffness=400.0, damping=80.0, torque=torque, armature=0.1) for torque in _ARM_TORQUE
)
# Fingers: only the torque limit is the published one. At 600-1000 Nm/rad it is reached by an error
# of a milliradian, so that at one step of 1/60 s the drive is a switch and the finger rattles
# (measured: 0.03 rad about its target). At 10 Nm/rad it is reached at 0.07 rad: a finger settles in
# 0.3 s without overshoot, and still grips with all its torque. The rotor's inertia, seven
# times a finger's own, bounds the speed that the full torque adds in one step (2 rad/s).
_FINGER_DRIVE = Drive(stiffness=10.0, damping=0.5, torque=0.7, armature=0.005)

DRIVES: tuple[Drive, ...] = (*_ARM_DRIVES, *(_FINGER_DRIVE,) * (len(JOINTS) - len(_ARM_DRIVES)))


def _quaternion(rpy: Vector) -> np.ndarray:
    """Return the unit quaternion of roll, pitch and yaw about fixed axes."""
    quaternion = np.zeros(4)
    mujoco.mju_euler2Quat(quaternion, np.asarray(rpy), "XYZ")
    return quaternion


def _scaled(vector: Vector) -> list[float]:
    """Return a length in the scaled robot (m)."""
    return [SCALE * value for value in vector]


def _add_shape(body: mujoco.MjsBody, shape: Shape, number: int, mass: float, hand: bool) -> None:
    """Add one geom; `mass` is 0 where the link's published inertia already has it."""
    geom = body.add_geom(name=f"{body.name}_{number}", type=shape.kind, rgba=shape.colour)
    if isinstance(shape.size, tuple):
        geom.size = _scaled(shape.size)
        geom.pos = _scaled(shape.start)
    else:
        geom.size = [SCALE * shape.size, 0.0, 0.0]
        geom.fromto = [*_scaled(shape.start), *_scaled(shape.end)]
    geom.mass = mass
    geom.contype, geom.conaffinity = Layer.ROBOT.value
    if hand:
        geom.contype |= _HAND_BIT
        geom.conaffinity |= _HAND_BIT
        # Sliding friction of rubber skin and of hard plastic. condim 4 lets a finger resist spin,
        # with the coefficient (m) of a contact patch a few millimetres wide. With priority these
        # numbers hold whatever is touched.
        geom.condim = 4
        geom.priority = 1
        geom.friction = [1.2, 0.005, 0.0001] if shape.rubber else [0.8, 0.003, 0.0001]


def _add_link(parent: mujoco.MjsBody, link: Link, hand: bool) -> mujoco.MjsBody:
    """Add a link's body, joint, mass and geoms to its parent."""
    body = parent.add_body(name=link.name, pos=_scaled(link.xyz), quat=_quaternion(link.rpy))
    body.gravcomp = 1.0
    if link.joint is not None:
        body.add_joint(
            name=link.joint,
            type=mujoco.mjtJoint.mjJNT_HINGE,
            axis=[0.0, 0.0, 1.0],
            range=link.limits,
            limited=True,
            armature=DRIVES[JOINTS.index(link.joint)].armature,
        )
    shapes = SHAPES.get(link.name, ())
    mass = link.mass * SCALE**3
    if link.inertia is None:
        # The published inertia has a negative eigenvalue or breaks the triangle inequality: no
        # body has it. The link's mass, spread evenly over its geoms, gives one that a body has.
        shares = [mass / len(shapes)] * len(shapes)
    else:
        body.explicitinertial = True
        body.mass = mass
        body.ipos = _scaled(link.com)
        body.fullinertia = [value * SCALE**5 for value in link.inertia]
        shares = [0.0] * len(shapes)
    for number, (shape, share) in enumerate(zip(shapes, shares, strict=True)):
        _add_shape(body, shape, number, share, hand)
    return body


def _add_camera(mount: mujoco.MjsBody) -> None:
    """Add the wrist camera, which looks along the fingers and is upright in the home pose."""
    mount.add_camera(
        name="wrist",
        pos=_scaled((0.05, 0.0, 0.02)),
        # The palm looks along the mount's x, which points down in the home pose.
        quat=_axes_quaternion(right=(0, -1, 0), up=(-1, 0, 0)),
        fovy=WRIST_FOVY,
    )


def _axes_quaternion(right: Vector, up: Vector) -> np.ndarray:
    """Return the orientation of a camera whose x axis is `right` and y axis is `up`."""
    matrix = np.column_stack([right, up, np.cross(right, up)]).astype(float)
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, matrix.reshape(-1))
    return quaternion


def _add_actuators(spec: mujoco.MjSpec) -> None:
    """Add a position servo of the joint's name to every joint."""
    limits = {link.joint: link.limits for link in LINKS}
    for joint, drive in zip(JOINTS, DRIVES, strict=True):
        actuator = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.set_to_position(kp=drive.stiffness, kv=drive.damping)
        actuator.ctrlrange = limits[joint]
        actuator.ctrllimited = True
        actuator.forcerange = [-drive.torque, drive.torque]
        actuator.forcelimited = True


def add_to(spec: mujoco.MjSpec) -> None:
    """Add the robot to a spec, at x = 1 m, turned to look along -x."""
    spec.compiler.degree = False  # joint limits are in radians
    base = spec.worldbody.add_body(name="kuka_base", pos=[1.0, 0.0, 0.0], quat=[0.0, 0.0, 0.0, 1.0])
    bodies = {"": base}
    for links, hand in ((ARM + MOUNT, False), (HAND, True)):
        for link in links:
            bodies[link.name] = _add_link(bodies[link.parent], link, hand)
    _add_camera(bodies["allegro_mount"])
    bodies["palm_link"].add_site(name="palm", size=[0.005, 0.005, 0.005], group=4)
    for finger in FINGERS:
        bodies[f"{finger}_link_3"].add_site(
            name=f"{finger}_grasp",
            pos=_scaled(_GRASP_POINT[finger]),
            size=[0.005, 0.005, 0.005],
            group=4,
        )
        # A finger's root turns inside the palm; MuJoCo itself leaves out neighbouring links only.
        spec.add_exclude(bodyname1="palm_link", bodyname2=f"{finger}_link_1")
    _add_actuators(spec)


def _home() -> tuple[float, ...]:
    """Return the home pose; the thumb's first joint rests at its lower limit."""
    arm = (0.0, -0.4, 0.0, -1.0, 0.0, 1.0, 0.0)
    limits = {link.joint: link.limits for link in LINKS}
    return (*arm, *(max(0.0, limits[joint][0]) for joint in JOINTS[len(arm) :]))


KUKA = Robot(
    name="Kuka",
    end_effector="hand",
    add_to=add_to,
    joints=JOINTS,
    home=_home(),
    speeds=(1.0,) * len(JOINTS),
    arm_bodies=tuple(link.name for link in ARM),
    fingers=tuple(f"{finger}_grasp" for finger in FINGERS),
    palm="palm",
    wrist_camera="wrist",
)
