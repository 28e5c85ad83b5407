"""The two sets of defaults for each kind of task, and the command line that changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tyro

from mimex.agents.drqv2_settings import MIMEX, PUBLISHED, DrQv2Settings
from mimex.agents.ppo_settings import PPOSettings
from mimex.bonus import BONUSES
from mimex.bonus.autoencoder import RELEASED
from mimex.config.run import (
    PRESETS,
    SUITE_REWARD,
    EvalSettings,
    TrackSettings,
    TrainConfig,
    VisionSettings,
    of_suite,
)
from mimex.data.replay_settings import ReplaySettings
from mimex.envs.dmc_tasks import PREFIX
from mimex.envs.nearest import choose
from mimex.envs.settings import TASKS
from mimex.train.on_policy import LoopSettings

PUBLISHED_ENVS = {"pixels": 512, "state": 256}
"""Environments side by side (MIMEx from pixels, MVP from state)."""

PUBLISHED_LRS = {"Franka": 1e-3, "Kuka": 5e-4}
PIXEL_LRS = {"FrankaMove": 1.5e-3, "KukaReach": 1.5e-3}
"""PPO's learning rate by robot, and the tasks that have another one from pixels (MVP's files
configs/ppo/train/*.yaml)."""

ALL_WINDOWS = 1 << 20
"""The release takes one optimizer step of the bonus per rollout, on all of its windows."""

PUBLISHED_SCALE = {"beta": 0.05, "unit": "raw"}
"""The paper's: the raw bonus."""

CPU = PPOSettings(
    lr_schedule="adaptive",
    epochs=3,
    minibatches=16,
    shuffle=True,
    clip=0.2,
    discount=0.98,
    initial_std=0.5,
    value_coef=1.0,
    value_gain=0.01,
    normalise_observations=True,
    normalise_values=True,
    separate_clips=True,
)
"""PPO of the cpu preset, for all tasks (benchmarks/results/learning/search.md)."""

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

_FREE_TEXT = ("--out", "--vision.checkpoint", "--track.wandb", "--track.trackio")


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
        vision=VisionSettings(encoder="vit", image_size=224),
    )
    if name == "paper":
        return _with(paper, scale=PUBLISHED_SCALE, mimex={"padding": "zeros", "size": RELEASED})
    cpu = replace(
        paper,
        preset="cpu",
        envs=PIXEL_ENVS if pixels else STATE_ENVS,
        ppo=CPU_PIXELS if pixels else CPU,
        loop=LoopSettings(train_fraction=0.125, stagger=True),
        vision=VisionSettings(),
    )
    return _with(cpu, scale={"beta": COVERS_COSTS})


def _with(config: TrainConfig, **sections: Mapping[str, Any]) -> TrainConfig:
    """The settings with some of a few sections changed."""
    changed: dict[str, Any] = {
        name: replace(getattr(config, name), **values) for name, values in sections.items()
    }
    return replace(config, **changed)


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
        # The vector itself is its own feature; of pictures the release takes the encoder's.
        drqv2=_graded(replace(MIMEX, features="encoder"), task),
        replay=ReplaySettings(run=1),
        eval=EvalSettings(every=10_000, episodes=10),  # DrQ-v2's
        track=TrackSettings(checkpoint_every=50_000),
    )
    sections = {bonus: {"normalise": not pixels} for bonus in BONUSES if hasattr(paper, bonus)}
    paper = _with(paper, **sections)
    if name == "paper":
        return _with(paper, scale=PUBLISHED_SCALE, mimex={"padding": "zeros", "size": RELEASED})
    return replace(
        paper,
        preset="cpu",
        drqv2=_published(task) if pixels else _state(PUBLISHED),
        replay=ReplaySettings(),
    )


def _graded(agent: DrQv2Settings, task: str) -> DrQv2Settings:
    return replace(agent, std_steps=NOISE_STEPS.get(task.removeprefix(PREFIX), agent.std_steps))


def _published(task: str) -> DrQv2Settings:
    domain = task.removeprefix(PREFIX).partition("_")[0]
    return replace(_graded(PUBLISHED, task), **EXCEPTIONS.get(domain, {}))


def _state(agent: DrQv2Settings) -> DrQv2Settings:
    return replace(agent, hidden=STATE_HIDDEN, lr=STATE_LR, features="encoder")


def parse(arguments: Sequence[str], prog: str = "mimex train") -> TrainConfig:
    """The settings that a command line asks for; the others are those of its preset."""
    name, observation = _chosen(arguments, "--preset"), _chosen(arguments, "--observation")
    chosen = preset(name or "cpu", observation, _task(arguments))
    missing: Any = tyro.MISSING  # or the help would not ask for it
    return tyro.cli(TrainConfig, args=arguments, default=replace(chosen, task=missing), prog=prog)


def _task(arguments: Sequence[str]) -> str:
    """The task among the arguments, before they can be read: defaults depend on it."""
    pairs = zip(["", *arguments], arguments, strict=False)
    tasks = (word for before, word in pairs if before not in _FREE_TEXT)
    return next((word for word in tasks if of_suite(word) or word in TASKS), "")


def _chosen(arguments: Sequence[str], flag: str) -> str | None:
    """What a flag says, before the rest can be read."""
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
