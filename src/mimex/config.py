"""What a run is: frozen settings, whose docstrings are the command line's help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from mimex.agents.ppo import PPOSettings
from mimex.bonus.autoencoder import AutoencoderSize
from mimex.bonus.scale import Normalise, Schedule
from mimex.envs.nearest import choose
from mimex.envs.reward import SHAPINGS
from mimex.envs.settings import OBSERVATIONS, TASKS
from mimex.train.training import LoopSettings

BONUSES = ("none", "mimex", "rnd", "icm", "pseudocount")
VISIONS = ("cnn", "vit")

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class ScaleSettings:
    """How big the bonus is."""

    beta: float = 0.05
    """Weight of the bonus."""
    normalise: Normalise = "none"
    """The raw bonus ("none", as published), or divided by the running standard deviation of its
    values ("step") or of its discounted sums ("return")."""
    clip: float | None = None
    """Largest normalised bonus; None for no limit."""
    schedule: Schedule = "constant"
    """How beta falls to final-beta over the run."""
    final_beta: float = 0.0
    """Beta at the run's end, where there is a schedule."""


@dataclass(frozen=True)
class MIMExSettings:
    """MIMEx: the error of filling in a trajectory's masked steps."""

    length: int = 5
    """Steps a window."""
    mask_ratio: float = 0.7
    """Share of the steps that is hidden."""
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
    """The task's own settings; the defaults are the published benchmark's."""

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
class VisionSettings:
    """How pictures are seen, with --observation pixels."""

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
    """Environment steps from one to the next; there is always one at the end."""
    episodes: int = 64
    """Episodes each."""


@dataclass(frozen=True)
class TrackSettings:
    """Where metrics go beside metrics.jsonl, and how often the run is saved."""

    checkpoint_every: int = 250_000
    """Environment steps from one checkpoint to the next."""
    tensorboard: bool = False
    """Write TensorBoard's event files into the run folder."""
    wandb: str | None = None
    """A project of Weights & Biases to log to."""
    trackio: str | None = None
    """A project of Trackio to log to."""


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent on a PixMC-Sparse task with an exploration bonus, or continue to."""

    task: tyro.conf.Positional[str]
    """FrankaReach, FrankaCabinet, FrankaPick, FrankaMove, or the same with Kuka."""
    reward: Annotated[str, tyro.conf.arg(metavar="{dense,sparse,sparser}")] = "sparse"
    """How much the reward helps."""
    observation: Annotated[str, tyro.conf.arg(metavar="{oracle,robot,pixels}")] = "oracle"
    """All state, the joints only, or the wrist camera's picture and the joints."""
    bonus: Annotated[str, tyro.conf.arg(metavar="{none,mimex,rnd,icm,pseudocount}")] = "none"
    """The exploration bonus."""
    steps: int = 2_000_000
    """Environment steps in all, over all environments."""
    envs: int = 512
    """Environments side by side."""
    seed: int = 0
    """Of everything."""
    out: Path | None = None
    """The run folder; by default runs/TASK-REWARD-BONUS-SEED. The same command continues there."""
    preset: Annotated[str, tyro.conf.arg(metavar="{cpu,paper}")] = "cpu"
    """Defaults chosen by measurement on two cores, or the published ones."""
    threads: int | None = None
    """Threads to work on; None for one a core."""
    ppo: PPOSettings = field(default_factory=PPOSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    mimex: MIMExSettings = field(default_factory=MIMExSettings)
    rnd: RNDSettings = field(default_factory=RNDSettings)
    icm: ICMSettings = field(default_factory=ICMSettings)
    pseudocount: PseudoCountSettings = field(default_factory=PseudoCountSettings)
    world: WorldSettings = field(default_factory=WorldSettings)
    vision: VisionSettings = field(default_factory=VisionSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    track: TrackSettings = field(default_factory=TrackSettings)

    def checked(self) -> TrainConfig:
        """These settings, if they make a run; an error that names the first that does not."""
        choose("task", self.task, TASKS)
        choose("--reward", self.reward, SHAPINGS)
        choose("--observation", self.observation, OBSERVATIONS)
        choose("--bonus", self.bonus, BONUSES)
        choose("--preset", self.preset, PRESETS)
        choose("--vision.encoder", self.vision.encoder, VISIONS)
        for name, value in (
            ("--steps", self.steps),
            ("--envs", self.envs),
            ("--eval.every", self.eval.every),
            ("--eval.episodes", self.eval.episodes),
            ("--track.checkpoint-every", self.track.checkpoint_every),
            ("--threads", 1 if self.threads is None else self.threads),
        ):
            if value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        if self.seed < 0:
            raise ValueError(f"--seed is {self.seed}, but must be 0 or more")
        return self

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        name = f"{self.task}-{self.reward}-{self.bonus}-{self.seed}"
        return self.out or Path("runs") / name

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of what JSON can say."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainConfig:
        """The settings that ``to_dict`` wrote."""
        return _build(cls, data)


PRESETS = ("cpu", "paper")

MAY_CHANGE = ("steps", "out", "threads", "track")
"""Settings with which a run may be continued though they differ from those of its start."""


PIXEL_ENVS, PIXEL_LR = 64, 2e-4
"""The cpu preset from pixels: with 1e-3 the policy moved too far in an update and was lost after
40,000 steps (FrankaReach dense, 64 px)."""


def preset(name: str, observation: str = "oracle", task: Any = "") -> TrainConfig:
    """The defaults of a preset, for a kind of observation."""
    choose("--preset", name, PRESETS)
    paper = TrainConfig(
        task=task,
        preset="paper",
        mimex=MIMExSettings(padding="zeros"),
        vision=VisionSettings(encoder="vit", image_size=224),
    )
    if name == "paper":
        return paper
    pixels = observation == "pixels"
    ppo = PPOSettings(epochs=5, value_clip=None, value_gain=0.01, initial_std=0.1)
    return replace(
        paper,
        preset="cpu",
        envs=PIXEL_ENVS if pixels else paper.envs,
        ppo=replace(ppo, lr=PIXEL_LR) if pixels else ppo,
        loop=LoopSettings(train_fraction=0.125, stagger=True),
        mimex=MIMExSettings(size=AutoencoderSize(class_token=False)),
        vision=VisionSettings(),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _build(cls: type[Settings], data: Mapping[str, Any]) -> Settings:
    kinds = get_type_hints(cls)
    chosen: dict[str, Any] = {}
    for name, value in data.items():
        choose("a setting in config.json", name, tuple(kinds))
        kind = kinds[name]
        if isinstance(kind, type) and is_dataclass(kind):
            chosen[name] = _build(kind, value)
        elif isinstance(value, list):
            chosen[name] = tuple(value)
        else:
            path = value is not None and kind == Path | None
            chosen[name] = Path(value) if path else value
    return cls(**chosen)
