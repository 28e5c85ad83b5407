"""What a run is: all of its settings, checked, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
import tyro

from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.agents.ppo_settings import PPOSettings
from mimex.config.parts import (
    EvalSettings,
    ICMSettings,
    MIMExSettings,
    PseudoCountSettings,
    RNDSettings,
    ScaleSettings,
    SuiteSettings,
    TrackSettings,
    VisionSettings,
    WorldSettings,
)
from mimex.data.replay_settings import ReplaySettings
from mimex.envs import dmc_tasks
from mimex.envs.nearest import choose
from mimex.envs.reward import SHAPINGS
from mimex.envs.settings import OBSERVATIONS, TASKS
from mimex.train.off_policy import OffPolicySettings
from mimex.train.on_policy import LoopSettings

AGENTS = ("ppo", "drqv2")
BONUSES = ("none", "constant", "mimex", "rnd", "icm", "pseudocount")
MASK_TYPES = ("time", "feature")
PRESETS = ("cpu", "paper")
QUALITIES = ("published", "fast")
SUITE_OBSERVATIONS = ("state", "pixels")
SUITE_REWARD = "task"
"""The reward of the suite's tasks: their own."""
VISIONS = ("cnn", "vit")

DEVICES = ("auto", "cpu", "cuda", "mps")

MAY_CHANGE = ("steps", "out", "threads", "device", "track")
"""Settings with which a run may be continued though they differ from those of its start."""

LARGEST = 2**63 - 1
"""What 64 bits hold: no setting means more."""

Settings = TypeVar("Settings")


@dataclass(frozen=True)
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
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    mimex: MIMExSettings = field(default_factory=MIMExSettings)
    rnd: RNDSettings = field(default_factory=RNDSettings)
    icm: ICMSettings = field(default_factory=ICMSettings)
    pseudocount: PseudoCountSettings = field(default_factory=PseudoCountSettings)
    world: WorldSettings = field(default_factory=WorldSettings)
    suite: SuiteSettings = field(default_factory=SuiteSettings)
    vision: VisionSettings = field(default_factory=VisionSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    track: TrackSettings = field(default_factory=TrackSettings)

    def checked(self) -> TrainConfig:
        """These settings, if they make a run; an error that names the first that does not."""
        _require_numbers(asdict(self))
        choose("--preset", self.preset, PRESETS)
        choose("--agent", self.agent, AGENTS)
        choose("--bonus", self.bonus, BONUSES)
        choose("--device", self.device, DEVICES)
        choose("--mimex.mask-type", self.mimex.mask_type, MASK_TYPES)
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
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainConfig:
        """The settings that ``to_dict`` wrote."""
        if "task" not in data:
            raise ValueError("config.json lacks the task: restore it")
        return _build(cls, data)


_SUITE_TASKS = tuple(dmc_tasks.PREFIX + name for name in dmc_tasks.NAMES)


def of_suite(task: str) -> bool:
    """Whether a task is one of the DeepMind Control suite, by its name's beginning."""
    return task.startswith(dmc_tasks.PREFIX)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _build(cls: type[Settings], data: Any, above: str = "") -> Settings:
    if not isinstance(data, Mapping):
        raise ValueError(
            f"config.json has {data!r} for {above[:-1]}, but expected settings by name"
        )
    kinds = get_type_hints(cls)
    chosen: dict[str, Any] = {}
    for name, value in data.items():
        choose("a setting in config.json", name, tuple(kinds))
        kind = kinds[name]
        if isinstance(kind, type) and is_dataclass(kind):
            chosen[name] = _build(kind, value, f"{above}{name}.")
            continue
        if not _fits(value, kind):
            raise ValueError(f"config.json has {value!r} for {above}{name}: expected {_name(kind)}")
        if isinstance(value, list):
            chosen[name] = tuple(value)
        else:
            path = value is not None and kind == Path | None
            chosen[name] = Path(value) if path else value
    return cls(**chosen)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value that JSON gave is of a setting's kind."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return value in inner
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if inner:  # one of several
        return any(_fits(value, one) for one in inner)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is (str if kind is Path else kind)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _require_numbers(settings: Mapping[str, Any], above: str = "--") -> None:
    """Raises an error if a setting is no number that can be calculated with."""
    for name, value in settings.items():
        flag = above + name.replace("_", "-")
        if isinstance(value, Mapping):
            _require_numbers(value, f"{flag}.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{flag} is {number}, but must be a finite number")
            if isinstance(number, int) and not -LARGEST <= number <= LARGEST:
                raise ValueError(f"{flag} is {number}, but must be at most {LARGEST}")
