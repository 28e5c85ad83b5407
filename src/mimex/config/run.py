"""All settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from mimex.agents import AGENTS, agent_class
from mimex.agents.encoders import VisionSettings
from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.scale import BonusScale
from mimex.config.declared import settings_of
from mimex.config.families import FAMILIES, family_of, require_task
from mimex.config.families.base import Family
from mimex.config.json import from_json, require_finite, to_json
from mimex.envs.nearest import choose
from mimex.track import LOGGERS
from mimex.train.restarts import RestartSettings

PRESETS = ("cpu", "paper", "small")
VISIONS = ("cnn", "vit")

DEVICES = ("auto", "cpu", "cuda")

MAY_CHANGE = ("steps", "horizon", "out", "processes", "threads", "device", "track")
"""Settings that may differ when a run is resumed."""


@dataclass(frozen=True)
class EvalSettings:
    """Evaluations during the run, with deterministic actions."""

    every: int = 250_000
    """Environment steps (dmc: frames) between evaluations; there is always one at the end."""
    episodes: int = 64
    """Episodes per evaluation."""


@dataclass(frozen=True)
class TrackSettings:
    """Logging and checkpoints; metrics are always written to metrics.jsonl."""

    checkpoint_every: int = 250_000
    """Environment steps (dmc: frames) between checkpoints."""
    loggers: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[{" + ",".join(LOGGERS) + "} ...]")
    ] = ()
    """Also log to these, for example tensorboard wandb."""
    project: str = "mimex"
    """Project name for wandb and trackio."""


def _sections() -> dict[str, type[Any]]:
    """Setting classes of all agents, bonuses and task families, by section name."""
    bonuses = {name: settings_of(bonus_class(name)) for name in BONUSES}
    return {
        **{name: kind for agent in AGENTS for name, kind in agent_class(agent).sections.items()},
        "scale": settings_of(BonusScale),
        **{name: kind for name, kind in bonuses.items() if fields(kind)},
        **{name: kind for family in FAMILIES for name, kind in family.sections.items()},
    }


Sections: Any = make_dataclass(
    "Sections",
    [(name, kind, field(default_factory=kind)) for name, kind in _sections().items()],
    frozen=True,
    kw_only=True,
)
"""A dataclass with one field per section of an agent, bonus or task family."""


@dataclass(frozen=True)
class TrainConfig(Sections):  # type: ignore[misc]
    """Train an agent on a task with an exploration bonus, or resume a run.

    Tasks are those of PixMC-Sparse, the DeepMind Control suite and Gymnasium.
    """

    task: tyro.conf.Positional[str]
    """A task of PixMC-Sparse (FrankaReach, FrankaCabinet, FrankaPick, FrankaMove, or the same with
    Kuka), of the control suite (such as dmc/cartpole_swingup_sparse), or a Gymnasium id (such as
    gym/CartPole-v1, or gym/MODULE:ID for your own module)."""
    agent: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(AGENTS) + "}")] = "ppo"
    """Algorithm; by default drqv2 for dmc/ and ppo otherwise. drqv2 needs continuous actions."""
    reward: Annotated[str, tyro.conf.arg(metavar="{dense,sparse,sparser}")] = "sparse"
    """Reward of the task; tasks of dmc/ and gym/ have their own."""
    curriculum: tuple[str, ...] = ()
    """Rewards to train with one after another, such as dense sparse sparser; evaluations use the
    last one."""
    curriculum_success: float = 0.8
    """Success rate over the last 100 training episodes at which a curriculum moves on."""
    observation: Annotated[
        str, tyro.conf.arg(metavar="{oracle,robot,pixels} or for dmc/ {state,pixels}")
    ] = "oracle"
    """Full state, joints only, or wrist camera and joints; for dmc/ state or camera images;
    environments of gym/ have their own."""
    bonus: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(BONUSES) + "}")] = "none"
    """Exploration bonus; "constant", a control, rewards every step equally."""
    bonus_view: tuple[str, ...] = ()
    """Features of a vector observation that the bonus sees: named groups such as hand object, or
    index ranges such as 24:27; all by default. Groups of dmc/ are the suite's observation names,
    those of gym/ the keys of a Dict observation; an unknown name lists the groups."""
    steps: int = 2_000_000
    """Total environment steps over all environments; for dmc/ frames, with suite.action-repeat
    frames per agent step."""
    futility: float = 1.0
    """Fraction of the steps after which a run without any positive training reward ends; 1 to
    disable."""
    horizon: int | None = None
    """Length of the learning rate and beta schedules in environment steps; by default the initial
    --steps. A resumed run keeps its horizon unless it is set again."""
    envs: int = 512
    """Number of parallel environments."""
    seed: int = 0
    """Random seed."""
    out: Path | None = None
    """Run folder; by default runs/TASK-REWARD-BONUS-SEED, with the observation (dmc/) or the agent
    (gym/) in place of the reward. The same command resumes the run."""
    preset: Annotated[str, tyro.conf.arg(metavar="{cpu,paper,small}")] = "cpu"
    """Defaults tuned on two CPU cores (cpu), the published ones (paper), or, for dmc/ from pixels,
    small images and networks (small), whose scores are not comparable with published ones."""
    processes: int = 1
    """Processes on this machine for data-parallel training (on-policy agents only); use torchrun
    for several machines. A run resumed with another number starts new episodes."""
    threads: int | None = None
    """Threads per process; by default the cores divided by the processes."""
    device: Annotated[str, tyro.conf.arg(metavar="{auto,cpu,cuda}")] = "cpu"
    """Device of networks, rollouts and bonus; "auto" is cuda if available, else cpu. A run may be
    resumed on another device, with other random numbers."""
    vision: VisionSettings = field(default_factory=VisionSettings)
    restarts: RestartSettings = field(default_factory=RestartSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    track: TrackSettings = field(default_factory=TrackSettings)

    def checked(self) -> TrainConfig:
        """Returns these settings; raises an error that names the first invalid one.

        Of images, heads and image size are those of the encoder's file, if it has its own.
        """
        require_finite(asdict(self))
        if self.device == "mps":
            raise ValueError(
                "--device is 'mps', but Apple's GPUs do not support float64, which statistics "
                "need: use --device cpu"
            )
        for flag, chosen, names in (
            ("--preset", self.preset, PRESETS),
            ("--agent", self.agent, AGENTS),
            ("--bonus", self.bonus, BONUSES),
            ("--device", self.device, DEVICES),
            ("--vision.encoder", self.vision.encoder, VISIONS),
            *(("--track.loggers", logger, LOGGERS) for logger in self.track.loggers),
        ):
            choose(flag, chosen, tuple(names))
        require_task(self.task)
        self.family.check(self)
        agent_class(self.agent).check(self)
        for flag, value, least in (
            ("--steps", self.steps, 1),
            ("--envs", self.envs, 1),
            ("--seed", self.seed, 0),
            ("--eval.every", self.eval.every, 1),
            ("--eval.episodes", self.eval.episodes, 1),
            ("--track.checkpoint-every", self.track.checkpoint_every, 1),
            ("--horizon", self.horizon, 1),
            ("--processes", self.processes, 1),
            ("--threads", self.threads, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{flag} is {value}, but must be at least {least}")
        for flag, share in (
            ("--futility", self.futility),
            ("--curriculum-success", self.curriculum_success),
        ):
            if not 0 < share <= 1:
                raise ValueError(f"{flag} is {share}, but must be in (0, 1]")
        if self.curriculum and self.curriculum[-1] != self.reward:
            raise ValueError(
                f"--reward is {self.reward!r}, but --curriculum ends with "
                f"{self.curriculum[-1]!r}: leave --reward out"
            )
        if self.envs % self.processes:
            nearest = self.processes * max(1, round(self.envs / self.processes))
            raise ValueError(
                f"--envs is {self.envs}, which {self.processes} processes cannot share equally: "
                f"use --envs {nearest}"
            )
        if self.observation == "pixels":
            return replace(self, vision=self.vision.fitted())
        return self

    def continuing(self, begun: Mapping[str, Any] | None) -> TrainConfig:
        """Returns these settings with the horizon of the run that they resume.

        Args:
            begun: Settings of the run's start, from ``to_dict``; None for a new run.

        Raises:
            ValueError: If the learning rate would be 0 after the horizon.
        """
        horizon = self.horizon or (begun or {}).get("horizon") or self.steps
        if type(horizon) is not int or horizon < 1:
            raise ValueError(
                f"{self.folder / 'config.json'} has {horizon!r} for horizon, but must be a number "
                "of steps: restore it, or choose another folder"
            )
        annealed = agent_class(self.agent).annealed(self)
        if self.horizon is None and self.steps > horizon and annealed:
            raise ValueError(
                f"--steps is {self.steps}, but this run's learning rate falls to 0 over the "
                f"{horizon} steps of its horizon ({annealed}): add --horizon {self.steps} to "
                "anneal it over all steps instead"
            )
        return replace(self, horizon=horizon)

    @property
    def family(self) -> Family:
        """The task family."""
        return family_of(self.task)

    @property
    def device_name(self) -> str:
        """Name of the PyTorch device; raises an error if it is not available."""
        cuda = torch.cuda.is_available()
        if self.device == "auto":
            return "cuda" if cuda else "cpu"
        if self.device == "cuda" and not cuda:
            raise ValueError(f"--device is {self.device}, but this machine has none: use auto")
        return self.device

    @property
    def title(self) -> str:
        """A short description."""
        return f"{self.task} {self._kind}, bonus {self.bonus}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        task = self.task.replace("/", "-").replace(":", "-")
        return self.out or Path("runs") / f"{task}-{self._kind}-{self.bonus}-{self.seed}"

    @property
    def _kind(self) -> str:
        """Distinguishes runs on the same task; includes the agent if it is not the default."""
        kind = self.family.kind(self)
        return kind if self.agent in (self.family.agent, kind) else f"{kind}-{self.agent}"

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of JSON values."""
        return {name: to_json(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainConfig:
        """Creates settings from the output of ``to_dict``."""
        config: TrainConfig = from_json(cls, data)
        return config
