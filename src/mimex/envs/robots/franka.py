"""The Franka Emika Panda with its parallel gripper, from primitive geoms."""

from __future__ import annotations

import math

import mujoco

from mimex.envs.robots.base import WRIST_FOVY, Robot
from mimex.envs.shapes import Colour, Layer, box, capsule, cylinder

WHITE: Colour = (0.93, 0.94, 0.95, 1.0)
DARK: Colour = (0.20, 0.21, 0.24, 1.0)
GREY: Colour = (0.60, 0.62, 0.65, 1.0)

# Published frames: (link, position in the parent (m), roll about x (rad), joint limits (rad)).
_QUARTER = math.pi / 2
_LINKS = (
    ("panda_link1", (0.0, 0.0, 0.333), 0.0, (-2.8973, 2.8973)),
    ("panda_link2", (0.0, 0.0, 0.0), -_QUARTER, (-1.7628, 1.7628)),
    ("panda_link3", (0.0, -0.316, 0.0), _QUARTER, (-2.8973, 2.8973)),
    ("panda_link4", (0.0825, 0.0, 0.0), _QUARTER, (-3.0718, -0.0698)),
    ("panda_link5", (-0.0825, 0.384, 0.0), -_QUARTER, (-2.8973, 2.8973)),
    ("panda_link6", (0.0, 0.0, 0.0), _QUARTER, (-0.0175, 3.7525)),
    ("panda_link7", (0.088, 0.0, 0.0), _QUARTER, (-2.8973, 2.8973)),
)
_TORQUES = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)  # N m, published
_STIFFNESS, _DAMPING = 400.0, 80.0  # N m/rad and N m s/rad, published
# With the published finger gain (1e6 N/m) a scripted grasp in MuJoCo holds the cube 1 time in 40;
# with this one, which closes on the 4.5 cm cube with 45 N, 40 times.
_FINGER_STIFFNESS, _FINGER_DAMPING = 2e3, 1e2  # N/m, N s/m
_FINGER_FORCE = 200.0  # N, published
_FINGER_RANGE = (0.0, 0.04)  # m, published
_SPEEDS = (2.175,) * 4 + (2.61,) * 3  # rad/s at most, published
# The drive brings a joint to stiffness / damping times the distance to its target per second. The
# fingers have no such limit: it would take the force from their grasp.
_LEADS = tuple(speed * _DAMPING / _STIFFNESS for speed in _SPEEDS) + (math.inf,) * 2  # rad, m
# Rotor inertia seen at the joint (kg m2; kg for the fingers): what makes the stiff drives stable
# at one simulation step per control step (without it the grasp holds 31 times in 40).
_ARMATURE = 0.1
# With MuJoCo's default contact the closed pads sink 2 mm into the cube; with this, 0.5 mm.
_PAD_FIRMNESS = (0.98, 0.998, 0.001)
# The published description has no inertias: they follow from the geoms, at the density with which
# the arm, base included, weighs the 18 kg of its data sheet.
_DENSITY = 1000.0  # kg/m3
_GRASP_POINT = (0.0, 0.0, 0.045)  # m, in the finger's frame, published

ARM_JOINTS = tuple(f"panda_joint{i}" for i in range(1, 8))
FINGER_JOINTS = ("panda_finger_joint1", "panda_finger_joint2")


def add_to(spec: mujoco.MjSpec) -> None:
    """Add the robot at x = 1, looking along -x."""
    base = spec.worldbody.add_body(name="panda_link0", pos=(1.0, 0.0, 0.0), quat=(0, 0, 0, 1))
    _shape_base(base)
    body = base
    rows = zip(ARM_JOINTS, _LINKS, _TORQUES, _SHAPES, strict=True)
    for joint, (link, pos, roll, limits), torque, shapes in rows:
        quat = (math.cos(roll / 2), math.sin(roll / 2), 0.0, 0.0)
        body = body.add_body(name=link, pos=pos, quat=quat, gravcomp=1.0)
        body.add_joint(name=joint, axis=(0, 0, 1), range=limits, armature=_ARMATURE)
        _shape(body, shapes)
        _drive(spec, joint, _STIFFNESS, _DAMPING, torque, limits)
    _add_hand(spec, body)


def _drive(
    spec: mujoco.MjSpec,
    joint: str,
    stiffness: float,
    damping: float,
    force: float,
    limits: tuple[float, float],
) -> None:
    actuator = spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        forcerange=(-force, force),
        ctrlrange=limits,
    )
    actuator.set_to_position(kp=stiffness, kv=damping)


def _add_hand(spec: mujoco.MjSpec, wrist: mujoco.MjsBody) -> None:
    turn = -math.pi / 4  # rad, of the hand about the flange's axis
    hand = wrist.add_body(
        name="panda_hand",
        pos=(0.0, 0.0, 0.107),
        quat=(math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2)),
        gravcomp=1.0,
    )
    box(hand, (0.0, 0.0, 0.026), (0.0315, 0.1, 0.026), WHITE, Layer.ROBOT).density = _DENSITY
    box(hand, (0.0, 0.0, 0.056), (0.016, 0.092, 0.004), DARK, Layer.LOOKS)
    # Looks along the fingers, image's top towards -x of the hand (published placement).
    hand.add_camera(
        name="wrist",
        pos=(0.04, 0.0, 0.045),
        xyaxes=(0, -1, 0, -1, 0, 0),
        fovy=WRIST_FOVY,
    )
    sides = (("panda_leftfinger", 1.0), ("panda_rightfinger", -1.0))
    for joint, (name, side) in zip(FINGER_JOINTS, sides, strict=True):
        finger = hand.add_body(name=name, pos=(0.0, 0.0, 0.0584), gravcomp=1.0)
        finger.add_joint(
            name=joint,
            type=mujoco.mjtJoint.mjJNT_SLIDE,
            axis=(0.0, side, 0.0),
            range=_FINGER_RANGE,
            armature=_ARMATURE,
        )
        box(
            finger, (0.0, side * 0.0145, 0.02), (0.0105, 0.0075, 0.02), GREY, Layer.ROBOT
        ).density = _DENSITY
        pad = box(finger, (0.0, side * 0.0075, 0.0445), (0.0095, 0.0075, 0.0095), DARK, Layer.ROBOT)
        pad.density = _DENSITY
        pad.solimp[:3], pad.priority = _PAD_FIRMNESS, 1
        finger.add_site(name=name, pos=_GRASP_POINT, size=(0.005,) * 3, group=4)
        _drive(spec, joint, _FINGER_STIFFNESS, _FINGER_DAMPING, _FINGER_FORCE, _FINGER_RANGE)


# Each link of the Panda is bent: half of one joint's housing, half of the next. The two halves of
# a housing sit side by side on the joint's axis, with a dark seam between them.
# (kind, start, end, radius), m, in the link's frame.
_Shape = tuple[str, tuple[float, float, float], tuple[float, float, float], float]
_SHAPES: tuple[tuple[_Shape, ...], ...] = (
    (
        ("tube", (0, 0, -0.19), (0, 0, -0.12), 0.06),
        ("limb", (0, 0, -0.13), (0, -0.05, 0), 0.058),
        ("seam", (0, 0, -0.198), (0, 0, -0.19), 0.057),
    ),
    (
        ("limb", (0, 0, 0.05), (0, -0.13, 0), 0.058),
        ("tube", (0, -0.12, 0), (0, -0.185, 0), 0.058),
        ("seam", (0, 0, -0.006), (0, 0, 0.006), 0.060),
    ),
    (
        ("tube", (0, 0, -0.12), (0, 0, -0.07), 0.058),
        ("limb", (0, 0, -0.08), (0.0825, 0.045, 0), 0.054),
        ("seam", (0, 0, -0.131), (0, 0, -0.12), 0.055),
    ),
    (
        ("limb", (0, 0, 0.045), (-0.0825, 0.09, 0), 0.054),
        ("tube", (-0.0825, 0.08, 0), (-0.0825, 0.122, 0), 0.056),
        ("seam", (0, 0, -0.006), (0, 0, 0.006), 0.056),
    ),
    (
        ("tube", (0, 0, -0.25), (0, 0, -0.2), 0.056),
        ("limb", (0, 0.01, -0.2), (0, 0.055, -0.01), 0.045),
        ("seam", (0, 0, -0.262), (0, 0, -0.25), 0.053),
    ),
    (
        ("limb", (0, 0, 0.01), (0.088, 0.01, 0), 0.047),
        ("tube", (0.088, 0.01, 0), (0.088, -0.045, 0), 0.047),
        ("seam", (0, 0, -0.015), (0, 0, -0.005), 0.047),
    ),
    (
        ("tube", (0, 0, 0.052), (0, 0, 0.09), 0.046),
        ("seam", (0, 0, 0.045), (0, 0, 0.052), 0.044),
        ("seam", (0, 0, 0.09), (0, 0, 0.107), 0.035),
    ),
)


def _shape(body: mujoco.MjsBody, shapes: tuple[_Shape, ...]) -> None:
    for kind, start, end, radius in shapes:
        if kind == "seam":
            cylinder(body, start, end, radius, DARK, Layer.LOOKS)
            continue
        add = capsule if kind == "limb" else cylinder
        add(body, start, end, radius, WHITE, Layer.ROBOT).density = _DENSITY


def _shape_base(body: mujoco.MjsBody) -> None:
    cylinder(body, (0, 0, 0), (0, 0, 0.135), 0.07, WHITE, Layer.ROBOT)
    box(body, (-0.06, 0, 0.035), (0.075, 0.08, 0.035), WHITE, Layer.ROBOT)


FRANKA = Robot(
    name="Franka",
    end_effector="gripper",
    add_to=add_to,
    joints=ARM_JOINTS + FINGER_JOINTS,
    home=(1.157, -1.066, -0.155, -2.239, -1.841, 1.003, 0.469, 0.035, 0.035),
    speeds=(1.0,) * 7 + (0.1,) * 2,
    arm_bodies=tuple(link for link, *_ in _LINKS),
    fingers=("panda_leftfinger", "panda_rightfinger"),
    palm=None,
    wrist_camera="wrist",
    leads=_LEADS,
)
