"""The settings of a run's parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from mimex.bonus.scale import BETA, HALF_LIFE, Schedule, Unit
from mimex.bonus.size import AutoencoderSize


@dataclass(frozen=True)
class ScaleSettings:
    """How big the bonus is."""

    beta: float = BETA
    """Size of an average bonus beside the average size of the task's reward, or beside returns of 1
    where the task pays less."""
    unit: Unit = "task"
    """Whether beta is beside the "task", or a factor on the "raw" bonus (published: 0.05)."""
    half_life: float = HALF_LIFE
    """Steps of each environment (dmc: sampled batches) after which averages forget half."""
    schedule: Schedule = "constant"
    """How beta falls to final-beta over the run."""
    final_beta: float = 0.0
    """Beta at the run's end, where there is a schedule."""


PUBLISHED_SCALE = ScaleSettings(beta=0.05, unit="raw")
"""The paper's: the raw bonus."""


@dataclass(frozen=True)
class MIMExSettings:
    """MIMEx: the error of filling in a trajectory's masked steps."""

    length: int = 5
    """Steps a window."""
    mask_type: Annotated[str, tyro.conf.arg(metavar="{time,feature}")] = "time"
    """What is hidden: whole steps ("time"), or single numbers of all steps ("feature")."""
    mask_ratio: float = 0.7
    """Share of the steps, or of the numbers, that is hidden."""
    masks: int = 1
    """Masks a window, averaged."""
    padding: str = "ignore"
    """Steps before an episode's first are left out ("ignore"), or are zeros like any other input
    ("zeros", as published)."""
    actions: bool = False
    """Show the action that led to each step, even where the step is hidden."""
    normalise: bool = False
    """Feed features normalised by running statistics."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    size: AutoencoderSize = field(default_factory=AutoencoderSize)
    """Widths and depths of the autoencoder."""


@dataclass(frozen=True)
class RNDSettings:
    """RND: the error of predicting a frozen random network."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    output_dim: int = 288
    """Width of the output."""
    normalise: bool = False
    """Feed features normalised by running statistics."""
    lr: float = 1e-3
    """Learning rate of Adam."""


@dataclass(frozen=True)
class ICMSettings:
    """ICM: the error of predicting the next step's features."""

    embed_dim: int = 288
    """Width of the features that the inverse model learns."""
    hidden: int = 256
    """Width of the hidden layer of both models."""
    normalise: bool = False
    """Feed features normalised by running statistics."""
    lr: float = 1e-3
    """Learning rate of Adam."""


@dataclass(frozen=True)
class PseudoCountSettings:
    """Pseudo-count: how badly hidden numbers of one state follow from the others."""

    mask_ratio: float = 0.5
    """Share of the numbers that is hidden."""
    masks: int = 1
    """Masks a state, averaged."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    normalise: bool = False
    """Feed features normalised by running statistics."""
    lr: float = 1e-3
    """Learning rate of Adam."""


@dataclass(frozen=True)
class WorldSettings:
    """Settings of PixMC-Sparse's tasks; the defaults are the published benchmark's."""

    control_hz: float = 60.0
    """Control steps per second."""
    episode_steps: int | None = None
    """Steps until an episode is truncated; None for the published length."""
    success_steps: int = 10
    """Consecutive steps that must meet the condition to make a success."""
    goal_spread: float = 1.0
    """Factor on the range that goals are drawn from."""
    object_spread: float = 1.0
    """Factor on the range that cubes and cabinets are drawn from."""
    joint_noise: float = 0.125
    """Half-width of the uniform noise on the home pose (rad, m)."""


@dataclass(frozen=True)
class SuiteSettings:
    """How tasks of the DeepMind Control suite are played; the defaults are DrQ-v2's."""

    action_repeat: int = 2
    """Control steps, called frames, that an action is applied for."""
    image_size: int = 84
    """Width and height of a picture (pixels)."""
    stack: int = 3
    """Newest pictures that the agent sees at once."""
    quality: Annotated[str, tyro.conf.arg(metavar="{published,fast}")] = "published"
    """dm_control's own pixels, or pictures without shadows, reflections and smoothed edges: many
    times faster, but scores cannot be compared with published ones."""


@dataclass(frozen=True)
class VisionSettings:
    """How PPO sees pictures, with --observation pixels."""

    encoder: str = "cnn"
    """A small network that learns with the policy ("cnn"), or a frozen ViT-S/16 ("vit")."""
    checkpoint: Path | None = None
    """Weights of the ViT: an MAE, MVP or timm file (.safetensors, .pth)."""
    heads: int = 12
    """Attention heads of the ViT, which its weights do not tell: 12 in MVP's, 6 in timm's."""
    image_size: int = 64
    """Width and height of the wrist camera's picture (pixels); the ViT takes 224."""


@dataclass(frozen=True)
class EvalSettings:
    """Evaluations during the run, without the policy's noise."""

    every: int = 250_000
    """Environment steps (dmc: frames) from one to the next; there is always one at the end."""
    episodes: int = 64
    """Episodes each."""


@dataclass(frozen=True)
class TrackSettings:
    """Where metrics go beside metrics.jsonl, and how often the run is saved."""

    checkpoint_every: int = 250_000
    """Environment steps (dmc: frames) from one checkpoint to the next."""
    tensorboard: bool = False
    """Write TensorBoard's event files into the run folder."""
    wandb: str | None = None
    """A project of Weights & Biases to log to."""
    trackio: str | None = None
    """A project of Trackio to log to."""
