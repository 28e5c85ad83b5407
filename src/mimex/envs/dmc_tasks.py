"""The tasks of the DeepMind Control suite by name, known without dm_control."""

from __future__ import annotations

from mimex.envs.nearest import choose

PREFIX = "dmc/"
"""What tells a task of the suite from one of PixMC-Sparse; also Gymnasium's namespace."""

SUITE = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse two_poles three_poles",
    "cheetah": "run",
    "dog": "stand walk trot run fetch",
    "finger": "spin turn_easy turn_hard",
    "fish": "upright swim",
    "hopper": "stand hop",
    "humanoid": "stand walk run run_pure_state",
    "humanoid_CMU": "stand walk run",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "walk run escape fetch",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer6 swimmer15",
    "walker": "stand walk run",
}
"""Tasks of each domain, as of dm_control 1.0.50."""

_PARTS = {f"{domain}_{task}": (domain, task) for domain in SUITE for task in SUITE[domain].split()}

NAMES = tuple(_PARTS)
"""`cartpole_swingup_sparse` and so on."""

PUBLISHED = (
    "acrobot_swingup",
    "cartpole_swingup_sparse",
    "finger_turn_easy",
    "finger_turn_hard",
    "quadruped_walk",
    "quadruped_run",
)
"""The six of the MIMEx paper."""


def domain_and_task(name: str) -> tuple[str, str]:
    """Return the suite's own two names of a task; an unknown one raises with the nearest."""
    return _PARTS[choose("task", name, NAMES)]


def camera_of(domain: str) -> int:
    """Return the camera that DrQ-v2 sees a domain through."""
    return 2 if domain == "quadruped" else 0
