"""The two sets of defaults, for each kind of task and observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mimex.agents.drqv2_settings import MIMEX, PUBLISHED, DrQv2Settings
from mimex.agents.ppo_settings import PPOSettings
from mimex.bonus.size import RELEASED, AutoencoderSize
from mimex.config.parts import (
    PUBLISHED_SCALE,
    EvalSettings,
    ICMSettings,
    MIMExSettings,
    PseudoCountSettings,
    RNDSettings,
    ScaleSettings,
    TrackSettings,
    VisionSettings,
)
from mimex.config.run import PRESETS, SUITE_REWARD, TrainConfig, of_suite
from mimex.data.replay_settings import ReplaySettings
from mimex.envs.dmc_tasks import PREFIX
from mimex.envs.nearest import choose
from mimex.train.on_policy import LoopSettings

PUBLISHED_ENVS = {"pixels": 512, "state": 256}
"""Environments side by side (MIMEx from pixels, MVP from state)."""

PUBLISHED_LRS = {"Franka": 1e-3, "Kuka": 5e-4}
PIXEL_LRS = {"FrankaMove": 1.5e-3, "KukaReach": 1.5e-3}
"""PPO's learning rate by robot, and the tasks that have another one from pixels (MVP's files
configs/ppo/train/*.yaml)."""

ALL_WINDOWS = 1 << 20
"""The release takes one optimizer step of the bonus per rollout, on all of its windows."""

CPU = PPOSettings(
    lr_schedule="adaptive",
    epochs=5,
    shuffle=True,
    clip=0.2,
    value_coef=1.0,
    value_gain=0.01,
    normalise_observations=True,
    normalise_values=True,
    separate_clips=True,
)
"""PPO of the cpu preset, for all tasks, from trials on three of them with one seed
(benchmarks/results/learning/preset-trials.md); the search that is to decide is
benchmarks/plans/search.toml."""

CPU_PIXELS = replace(CPU, lr=2e-4)
"""The same from pixels. With 1e-3 the policy moved too far in an update and was lost after 40,000
steps (FrankaReach dense, 64 px; with the learner of 0.1)."""

COVERS_COSTS = 1.0
"""Beta of the cpu preset on PixMC-Sparse, where every step costs an action's penalty and touching
the arm is a way out: an average bonus outweighs an average step's cost. On sparse FrankaReach
MIMEx's episodes last 190 of 200 steps with it after 0.3 million steps, with 0.3 they last 19."""

STATE_ENVS, PIXEL_ENVS = 512, 64
"""Environments of the cpu preset."""

SUITE_FRAMES = {"state": 500_000, "pixels": 1_000_000}
"""Length of runs on the suite, by observation."""

STATE_HIDDEN, STATE_LR = 256, 1e-3
"""The cpu preset from a suite's state, which is some ten numbers. Return on cartpole_swingup after
30,000 frames with the published learning rate of 1e-4: 247, with this one: 717 (seed 0)."""

MEDIUM = [
    "acrobot_swingup",
    "cartpole_swingup_sparse",
    "cheetah_run",
    "finger_turn_easy",
    "finger_turn_hard",
    "hopper_hop",
    "quadruped_run",
    "quadruped_walk",
    "reacher_easy",
    "reacher_hard",
    "walker_run",
]
HARD = ("humanoid_stand", "humanoid_walk", "humanoid_run")
"""DrQ-v2's own grades of tasks (its files cfgs/task/*.yaml), by which its noise falls over more
steps; the rest is easy."""

EXCEPTIONS: Mapping[str, Mapping[str, Any]] = {
    "walker": {"n_step": 1, "batch": 512},
    "humanoid": {"lr": 8e-5, "trunk": 100},
}
"""Where DrQ-v2's published settings differ for all tasks of a domain."""

NOISE_STEPS = dict.fromkeys(MEDIUM, 500_000) | dict.fromkeys(HARD, 2_000_000)
"""Agent steps over which the noise falls in tasks that are not easy (DrQ-v2)."""


def preset(name: str, observation: str | None = None, task: str = "") -> TrainConfig:
    """The defaults of a preset.

    Args:
        name: "cpu" or "paper".
        observation: A kind of observation that they are for; None for the preset's own.
        task: The task that they are for; any of PixMC-Sparse gives the same.
    """
    choose("--preset", name, PRESETS)
    if of_suite(task):
        return _suite(name, observation, task)
    return _pixmc(name, observation or "oracle", task)


def _pixmc(name: str, observation: str, task: str) -> TrainConfig:
    pixels = observation == "pixels"
    paper = TrainConfig(
        task=task,
        observation=observation,
        preset="paper",
        envs=PUBLISHED_ENVS["pixels" if pixels else "state"],
        ppo=PPOSettings(lr=_published_lr(task, pixels)),
        loop=LoopSettings(bonus_minibatch=ALL_WINDOWS),
        scale=PUBLISHED_SCALE,
        mimex=MIMExSettings(padding="zeros", size=RELEASED),
        vision=VisionSettings(encoder="vit", image_size=224),
    )
    if name == "paper":
        return paper
    return replace(
        paper,
        preset="cpu",
        envs=PIXEL_ENVS if pixels else STATE_ENVS,
        ppo=CPU_PIXELS if pixels else CPU,
        scale=ScaleSettings(beta=COVERS_COSTS),
        loop=LoopSettings(train_fraction=0.125, stagger=True),
        mimex=MIMExSettings(),
        vision=VisionSettings(),
    )


def _published_lr(task: str, pixels: bool) -> float:
    robot = "Kuka" if task.startswith("Kuka") else "Franka"
    return PIXEL_LRS.get(task, PUBLISHED_LRS[robot]) if pixels else PUBLISHED_LRS[robot]


def _suite(name: str, observation: str | None, task: str) -> TrainConfig:
    kind = observation or ("pixels" if name == "paper" else "state")
    pixels = kind == "pixels"
    paper = TrainConfig(
        task=task,
        agent="drqv2",
        reward=SUITE_REWARD,
        observation=kind,
        steps=SUITE_FRAMES.get(kind, SUITE_FRAMES["state"]),
        envs=1,
        preset="paper",
        scale=PUBLISHED_SCALE,
        # The vector itself is its own feature; of pictures the release takes the encoder's.
        drqv2=_graded(replace(MIMEX, features="encoder"), task),
        mimex=MIMExSettings(padding="zeros", normalise=not pixels, size=RELEASED),
        rnd=RNDSettings(normalise=not pixels),
        icm=ICMSettings(normalise=not pixels),
        pseudocount=PseudoCountSettings(normalise=not pixels),
        replay=ReplaySettings(run=1),
        eval=EvalSettings(every=10_000, episodes=10),  # DrQ-v2's
        track=TrackSettings(checkpoint_every=50_000),
    )
    if name == "paper":
        return paper
    return replace(
        paper,
        preset="cpu",
        scale=ScaleSettings(),
        drqv2=_published(task) if pixels else _state(PUBLISHED),
        mimex=replace(paper.mimex, padding="ignore", size=AutoencoderSize()),
        replay=ReplaySettings(),
    )


def _graded(agent: DrQv2Settings, task: str) -> DrQv2Settings:
    return replace(agent, std_steps=NOISE_STEPS.get(task.removeprefix(PREFIX), agent.std_steps))


def _published(task: str) -> DrQv2Settings:
    domain = task.removeprefix(PREFIX).partition("_")[0]
    return replace(_graded(PUBLISHED, task), **EXCEPTIONS.get(domain, {}))


def _state(agent: DrQv2Settings) -> DrQv2Settings:
    return replace(agent, hidden=STATE_HIDDEN, lr=STATE_LR, features="encoder")
