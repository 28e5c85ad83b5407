"""Kinematic and inertial figures of the KUKA iiwa7 and of the Allegro hand, as published.

Metres, radians and kilograms before scaling. They are the manufacturers' descriptions; the hand
is the version with BioTac fingertips, which is why its last links lean 1 cm towards the palm.
"""

from __future__ import annotations

from dataclasses import dataclass

Vector = tuple[float, float, float]

HALF_PI = 1.57079632679
PI = 3.14159265359

# The hand's description rounds its right angles; its frames keep that rounding.
HAND_HALF_PI = 1.57075
HAND_PI = 3.1415

SPREAD = 0.0872638888889  # rad: index and ring are fanned out by five degrees


@dataclass(frozen=True)
class Link:
    """One link and the joint that carries it.

    Attributes:
        name: Name of the body.
        parent: Name of the parent's body.
        joint: Name of the joint about the link's own z, None if the link is fixed.
        xyz: Origin of the link in the parent's frame (m).
        rpy: Roll, pitch and yaw about the parent's fixed axes (rad).
        limits: Lowest and highest joint position (rad).
        mass: Mass (kg).
        com: Centre of mass in the link's frame (m).
        inertia: xx, yy, zz, xy, xz, yz about the centre of mass (kg m2); None where the published
            figures are not those of a body (see `kuka_allegro`).
    """

    name: str
    parent: str
    joint: str | None
    xyz: Vector
    rpy: Vector
    limits: tuple[float, float]
    mass: float
    com: Vector
    inertia: tuple[float, float, float, float, float, float] | None


def _arm(
    number: int,
    xyz: Vector,
    rpy: Vector,
    limit: float,
    mass: float,
    com: Vector,
    inertia: tuple[float, float, float, float, float, float],
) -> Link:
    """Return link `number` of the arm, carried by the joint of the same number."""
    return Link(
        name=f"iiwa7_link_{number}",
        parent=f"iiwa7_link_{number - 1}",
        joint=f"iiwa7_joint_{number}",
        xyz=xyz,
        rpy=rpy,
        limits=(-limit, limit),
        mass=mass,
        com=com,
        inertia=inertia,
    )


_KNUCKLE_INERTIA = (5.1458e-05, 5.1458e-05, 6.125e-05, 0.0, 0.0, 0.0)


def _finger(name: str, xyz: Vector, yaw: float) -> tuple[Link, ...]:
    """Return the four links of the index, middle or ring finger, from the palm outwards."""
    spread = (-0.558488888889, 0.558488888889)
    curl = (-0.279244444444, 1.727825)
    # origin, orientation, limits, mass, x of the centre of mass, inertia
    rows = (
        (xyz, (HAND_PI, -HAND_HALF_PI, yaw), spread, 0.005, 0.0, _KNUCKLE_INERTIA),
        ((0.0, 0.0, 0.0), (HAND_PI, -HAND_HALF_PI, HAND_HALF_PI), curl, 0.125164, 0.027, None),
        ((0.054, 0.0, 0.0), (0.0, 0.0, 0.0), curl, 0.131691, 0.039, None),
        ((0.0384, 0.0, 0.0), (0.0, 0.0, 0.0), curl, 0.0211922, 0.029, None),
    )
    return tuple(
        Link(
            name=f"{name}_link_{number}",
            parent="palm_link" if number == 0 else f"{name}_link_{number - 1}",
            joint=f"{name}_joint_{number}",
            xyz=origin,
            rpy=rpy,
            limits=limits,
            mass=mass,
            com=(com, 0.0, 0.0),
            inertia=inertia,
        )
        for number, (origin, rpy, limits, mass, com, inertia) in enumerate(rows)
    )


def _thumb() -> tuple[Link, ...]:
    """Return the four links of the thumb, from the palm outwards."""
    # origin, orientation, limits
    rows: tuple[tuple[Vector, Vector, tuple[float, float]], ...] = (
        (
            (-0.0367482, -0.0081281, -0.0295),
            (-HAND_HALF_PI, -HAND_HALF_PI, 1.48348611111),
            (0.279244444444, HAND_HALF_PI),
        ),
        ((0.005, 0.0, 0.0), (HAND_HALF_PI, 0.0, 0.0), (-0.331602777778, 1.15188333333)),
        ((0.0, 0.0, 0.0554), (HAND_PI, -HAND_HALF_PI, 0.0), (-0.279244444444, 1.727825)),
        ((0.0514, 0.0, 0.0), (0.0, 0.0, 0.0), (-0.279244444444, 1.76273055556)),
    )
    return tuple(
        Link(
            name=f"thumb_link_{number}",
            parent="palm_link" if number == 0 else f"thumb_link_{number - 1}",
            joint=f"thumb_joint_{number}",
            xyz=origin,
            rpy=rpy,
            limits=limits,
            mass=0.1,
            com=(0.0, 0.0, 0.0),
            inertia=_KNUCKLE_INERTIA,
        )
        for number, (origin, rpy, limits) in enumerate(rows)
    )


_FIXED = (0.0, 0.0)
_ORIGIN = (0.0, 0.0, 0.0)

ARM: tuple[Link, ...] = (
    Link(
        "iiwa7_link_0", "", None, _ORIGIN, _ORIGIN, _FIXED,
        5.0, (-0.1, 0.0, 0.07), (0.05, 0.06, 0.03, 0.0, 0.0, 0.0),
    ),
    _arm(
        1, (0.0, 0.0, 0.15), _ORIGIN, 2.96705972839,
        3.4525, (0.0, -0.03, 0.12), (0.02183, 0.007703, 0.02083, 0.0, 0.0, -0.003887),
    ),
    _arm(
        2, (0.0, 0.0, 0.19), (HALF_PI, 0.0, PI), 2.09439510239,
        3.4821, (0.0003, 0.059, 0.042), (0.02076, 0.02179, 0.00779, 0.0, -0.003626, 0.0),
    ),
    _arm(
        3, (0.0, 0.21, 0.0), (HALF_PI, 0.0, PI), 2.96705972839,
        4.05623, (0.0, 0.03, 0.13), (0.03204, 0.00972, 0.03042, 0.0, 0.0, 0.006227),
    ),
    _arm(
        4, (0.0, 0.0, 0.19), (HALF_PI, 0.0, 0.0), 2.09439510239,
        3.4822, (0.0, 0.067, 0.034), (0.02178, 0.02075, 0.007785, 0.0, 0.0, -0.003625),
    ),
    _arm(
        5, (0.0, 0.21, 0.0), (-HALF_PI, PI, 0.0), 2.96705972839,
        2.1633, (0.0001, 0.021, 0.076), (0.01287, 0.005708, 0.01112, 0.0, 0.0, -0.003946),
    ),
    _arm(
        6, (0.0, 0.0607, 0.19), (HALF_PI, 0.0, 0.0), 2.09439510239,
        2.3466, (0.0, 0.0006, 0.0004), (0.006509, 0.006259, 0.004527, 0.0, 0.0, 0.00031891),
    ),
    _arm(
        7, (0.0, 0.081, 0.0607), (-HALF_PI, PI, 0.0), 3.05432619099,
        3.129, (0.0, 0.0, 0.02), (0.01464, 0.01465, 0.002872, 0.0005912, 0.0, 0.0),
    ),
)  # fmt: skip

MOUNT: tuple[Link, ...] = (
    Link(
        "iiwa7_link_ee", "iiwa7_link_7", None, (0.0, 0.0, 0.071), _ORIGIN, _FIXED,
        0.1, _ORIGIN, (0.001, 0.001, 0.001, 0.0, 0.0, 0.0),
    ),
    Link(
        "allegro_mount", "iiwa7_link_ee", None, _ORIGIN, _ORIGIN, _FIXED,
        0.05, _ORIGIN, (0.0001, 0.0001, 0.0001, 0.0, 0.0, 0.0),
    ),
)  # fmt: skip

HAND: tuple[Link, ...] = (
    Link(
        "palm_link", "allegro_mount", None,
        (0.008219, -0.02063, 0.08086), (0.0, -1.5708, 3.14159), _FIXED,
        0.4154, _ORIGIN, (0.0001, 0.0001, 0.0001, 0.0, 0.0, 0.0),
    ),
    *_finger("index", (0.0514302, -0.03632, -0.0113), -SPREAD),
    *_finger("middle", (0.0537375, 0.0087771, -0.0113), 0.0),
    *_finger("ring", (0.0514302, 0.0538749, -0.0113), SPREAD),
    *_thumb(),
)  # fmt: skip

LINKS = ARM + MOUNT + HAND
