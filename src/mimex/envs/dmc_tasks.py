"""Names of the DeepMind Control suite's tasks, available without dm_control."""

from __future__ import annotations

from mimex.envs.nearest import choose

PREFIX = "dmc/"
"""Prefix of the suite's task names, and their Gymnasium namespace."""

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
"""All task names, such as `cartpole_swingup_sparse`."""

PUBLISHED = (
    "acrobot_swingup",
    "cartpole_swingup_sparse",
    "finger_turn_easy",
    "finger_turn_hard",
    "quadruped_walk",
    "quadruped_run",
)
"""The six tasks of the MIMEx paper."""


def domain_and_task(name: str) -> tuple[str, str]:
    """Return domain and task; an unknown name raises ValueError with the closest one."""
    return _PARTS[choose("task", name, NAMES)]


def camera_of(domain: str) -> int:
    """Return the camera index that DrQ-v2 uses for a domain."""
    return 2 if domain == "quadruped" else 0
