"""What a run is: all of its settings, checked, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
)

import torch
import tyro

from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.agents.ppo_settings import PPOSettings
from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.scale import BonusScale
from mimex.config.declared import settings_of
from mimex.config.json import build, plain, require_numbers
from mimex.data.replay_settings import ReplaySettings
from mimex.envs import dmc_tasks
from mimex.envs.nearest import choose
from mimex.envs.reward import SHAPINGS
from mimex.envs.settings import OBSERVATIONS, TASKS
from mimex.envs.settings import Settings as WorldSettings
from mimex.train.off_policy import OffPolicySettings
from mimex.train.on_policy import LoopSettings

AGENTS = ("ppo", "drqv2")
PRESETS = ("cpu", "paper")
QUALITIES = ("published", "fast")
SUITE_OBSERVATIONS = ("state", "pixels")
SUITE_REWARD = "task"
"""The reward of the suite's tasks: their own."""
VISIONS = ("cnn", "vit")

DEVICES = ("auto", "cpu", "cuda", "mps")

MAY_CHANGE = ("steps", "out", "threads", "device", "track")
"""Settings with which a run may be continued though they differ from those of its start."""

WORLD = (
    "control_hz",
    "episode_steps",
    "success_steps",
    "goal_spread",
    "object_spread",
    "joint_noise",
)
"""What may be chosen about the tasks of PixMC-Sparse, beside the settings of a run."""

Settings = TypeVar("Settings")


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


def _declared() -> dict[str, type[Any]]:
    """The sections of settings that classes declare themselves, by name: every bonus has one."""
    bonuses = {name: settings_of(bonus_class(name)) for name in BONUSES}
    return {
        "scale": settings_of(BonusScale),
        **{name: kind for name, kind in bonuses.items() if fields(kind)},
        "world": settings_of(WorldSettings, WORLD),
    }


def _with_declared(cls: type[Settings]) -> type[Settings]:
    """Adds these sections to a class of settings."""
    for name, kind in _declared().items():
        cls.__annotations__[name] = kind
        setattr(cls, name, field(default_factory=kind))
    return cls


@dataclass(frozen=True)
@_with_declared
class TrainConfig:
    """Train an agent on a task with an exploration bonus, or continue to.

    Tasks are those of PixMC-Sparse, with PPO, and of the DeepMind Control suite, with DrQ-v2.
    """

    task: tyro.conf.Positional[str]
    """FrankaReach, FrankaCabinet, FrankaPick, FrankaMove, or the same with Kuka; or dmc/ and a
    task of the suite, for example dmc/cartpole_swingup_sparse."""
    agent: Annotated[str, tyro.conf.arg(metavar="{ppo,drqv2}")] = "ppo"
    """The algorithm: ppo for PixMC-Sparse, drqv2 for dmc/."""
    reward: Annotated[str, tyro.conf.arg(metavar="{dense,sparse,sparser}")] = "sparse"
    """How much the reward helps; tasks of dmc/ have their own."""
    observation: Annotated[
        str, tyro.conf.arg(metavar="{oracle,robot,pixels} or for dmc/ {state,pixels}")
    ] = "oracle"
    """All state, the joints only, or the wrist camera's picture and the joints; for dmc/ the
    state or the camera's pictures."""
    bonus: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(BONUSES) + "}")] = "none"
    """The exploration bonus; "constant" pays the same for every step, and is the control."""
    steps: int = 2_000_000
    """Environment steps in all, over all environments; for dmc/ frames, of which an agent's step
    has suite.action-repeat."""
    horizon: int | None = None
    """Environment steps over which the learning rate and beta run where they have a schedule; None
    for the steps with which the run begins, also when it is continued for more."""
    envs: int = 512
    """Environments side by side."""
    seed: int = 0
    """Of everything."""
    out: Path | None = None
    """The run folder; by default runs/TASK-REWARD-BONUS-SEED, for dmc/ with the observation in
    place of the reward. The same command continues there."""
    preset: Annotated[str, tyro.conf.arg(metavar="{cpu,paper}")] = "cpu"
    """Defaults chosen by measurement on two cores, or the published ones."""
    threads: int | None = None
    """Threads to work on; None for one a core."""
    device: Annotated[str, tyro.conf.arg(metavar="{auto,cpu,cuda,mps}")] = "cpu"
    """Where networks, rollouts and bonus are; "auto" takes a GPU where there is one. A run may be
    continued on another one."""
    ppo: PPOSettings = field(default_factory=PPOSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    drqv2: DrQv2Settings = field(default_factory=DrQv2Settings)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    off_policy: OffPolicySettings = field(default_factory=OffPolicySettings)
    suite: SuiteSettings = field(default_factory=SuiteSettings)
    vision: VisionSettings = field(default_factory=VisionSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    track: TrackSettings = field(default_factory=TrackSettings)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The sections that classes declare: ``scale``, ``world``, and that of every bonus."""

    def checked(self) -> TrainConfig:
        """These settings, if they make a run; an error that names the first that does not."""
        require_numbers(asdict(self))
        choose("--preset", self.preset, PRESETS)
        choose("--agent", self.agent, AGENTS)
        choose("--bonus", self.bonus, tuple(BONUSES))
        choose("--device", self.device, DEVICES)
        if of_suite(self.task):
            self._check_suite()
        else:
            self._check_pixmc()
        for name, value in (
            ("--steps", self.steps),
            ("--envs", self.envs),
            ("--eval.every", self.eval.every),
            ("--eval.episodes", self.eval.episodes),
            ("--track.checkpoint-every", self.track.checkpoint_every),
            ("--horizon", 1 if self.horizon is None else self.horizon),
            ("--threads", 1 if self.threads is None else self.threads),
        ):
            if value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        if self.seed < 0:
            raise ValueError(f"--seed is {self.seed}, but must be 0 or more")
        return self

    def _check_pixmc(self) -> None:
        choose("task", self.task, (*TASKS, *_SUITE_TASKS))
        choose("--reward", self.reward, SHAPINGS)
        choose("--observation", self.observation, OBSERVATIONS)
        choose("--vision.encoder", self.vision.encoder, VISIONS)
        if self.agent != "ppo":
            raise ValueError(
                f"--agent is {self.agent!r}, but {self.task} is trained by ppo: drqv2 plays the "
                "tasks of dmc/"
            )

    def _check_suite(self) -> None:
        choose("task", self.task, _SUITE_TASKS)
        choose("--observation", self.observation, SUITE_OBSERVATIONS)
        choose("--suite.quality", self.suite.quality, QUALITIES)
        if self.agent != "drqv2":
            raise ValueError(
                f"--agent is {self.agent!r}, but {self.task} is trained by drqv2: ppo plays the "
                "tasks of PixMC-Sparse"
            )
        if hasattr(bonus_class(self.bonus), "follow"):
            raise ValueError(
                f"--bonus is {self.bonus!r}, but it needs its episode's whole past, which "
                "transitions sampled from drqv2's replay buffer do not have: choose another bonus"
            )
        if self.reward != SUITE_REWARD:
            raise ValueError(
                f"--reward is {self.reward!r}, but {self.task} has a reward of its own: leave "
                f"--reward out; for a sparse one choose a task such as {_SUITE_TASKS[6]}"
            )

    def continuing(self, begun: Mapping[str, Any] | None) -> TrainConfig:
        """These settings, with the horizon of the run that they continue, or else with their own.

        Args:
            begun: The settings with which the run was begun, as ``to_dict`` wrote them.
        """
        horizon = self.horizon or (begun or {}).get("horizon") or self.steps
        if type(horizon) is not int or horizon < 1:
            raise ValueError(
                f"{self.folder / 'config.json'} has {horizon!r} for horizon: expected a number of "
                "steps; restore it, or choose another folder"
            )
        return replace(self, horizon=horizon)

    @property
    def device_name(self) -> str:
        """The device by PyTorch's name; an error if this machine has none of that kind."""
        there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
        if self.device == "auto":
            return next(name for name in ("cuda", "mps", "cpu") if there[name])
        if not there[self.device]:
            raise ValueError(f"--device is {self.device}, but this machine has none: use auto")
        return self.device

    @property
    def title(self) -> str:
        """What runs, in a few words."""
        kind = self.observation if of_suite(self.task) else self.reward
        return f"{self.task} {kind}, bonus {self.bonus}"

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        kind = self.observation if of_suite(self.task) else self.reward
        name = f"{self.task.replace('/', '-')}-{kind}-{self.bonus}-{self.seed}"
        return self.out or Path("runs") / name

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of what JSON can say."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainConfig:
        """The settings that ``to_dict`` wrote."""
        if "task" not in data:
            raise ValueError("config.json lacks the task: restore it")
        return build(cls, data)


_SUITE_TASKS = tuple(dmc_tasks.PREFIX + name for name in dmc_tasks.NAMES)


def of_suite(task: str) -> bool:
    """Whether a task is one of the DeepMind Control suite, by its name's beginning."""
    return task.startswith(dmc_tasks.PREFIX)
