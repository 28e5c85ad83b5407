"""`mimex play`: episodes of a run's policy, or of an agent without training, and their video."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array
from rich.console import Console

from mimex.commands.build import Which, load_agent, make_env
from mimex.commands.pretrained import load_pretrained
from mimex.config import TrainConfig, preset
from mimex.contracts import Policy, episode_steps
from mimex.envs.catalog import NAMES
from mimex.nn.parallel import use_workers
from mimex.track.display import Display
from mimex.track.video import ffmpeg, write_video
from mimex.train.evaluate import Evaluation, rollout_images

UNKNOWN_FPS = 30
"""Of videos where environments do not say how fast they are."""


@dataclass(frozen=True)
class PlayConfig:
    """Play a run's policy, or with --agent or --pretrained a task.

    Prints each episode's outcome and makes a video.
    """

    what: tyro.conf.Positional[str]
    """A run folder; with --agent or --pretrained a task, for example FrankaPick."""
    agent: Literal["zero", "random", "expert"] | None = None
    """What plays a task: actions that are all zero, random ones, or the scripted expert, which
    tasks of PixMC-Sparse have."""
    pretrained: bool = False
    """Play the task with its shipped policy; a .safetensors file of `mimex export` works too."""
    video: Path | None = None
    """The mp4 to write; by default videos/play.mp4 in the run folder, or TASK.mp4 here."""
    episodes: int = 1
    """How many."""
    seed: int = 0
    """Of the first start, and of random actions."""
    checkpoint: Which = "latest"
    """Which of the run's checkpoints."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and plays; 1 if a video was asked for that cannot be made."""
    config = tyro.cli(PlayConfig, args=arguments, prog="mimex play")
    if config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    use_workers(1)
    played, agent, path = _chosen(config)
    problem = None
    try:
        env = drawn(played)
    except UndrawnError as error:
        env, problem = make_env(played, 1), str(error)
    if config.agent is not None:
        agent = Untrained(config.agent, played.task, env, config.seed)
    assert agent is not None
    number = 0

    def ended(outcome: Evaluation) -> None:
        nonlocal number
        number += 1
        success = {None: "", 0: ", no success", 1: ", success"}[outcome.successes]
        steps = f"{outcome.mean_steps:.0f} steps"
        print(f"episode {number}: return {outcome.mean_return:.2f} in {steps}{success}", flush=True)

    play(env, agent, path, seed=config.seed, episodes=config.episodes, ended=ended)
    if problem is not None:
        print(f"mimex: no video: {problem}", file=sys.stderr)
        return 0 if config.video is None else 1
    print(path)
    return 0


def _chosen(config: PlayConfig) -> tuple[TrainConfig, Policy | None, Path]:
    """The settings of what is played, a run's policy, and where its video goes."""
    if config.pretrained:
        if config.agent is not None:
            raise ValueError("--agent and --pretrained both choose what plays: leave one out")
        trained, policy, _ = load_pretrained(config.what)
        return trained, policy, config.video or Path(f"{Path(config.what).stem}.mp4")
    if config.agent is not None:
        task = preset("cpu", task=config.what).checked()
        if config.agent == "expert" and config.what not in NAMES:
            raise ValueError(
                f"--agent is 'expert', but {config.what} has none: use a task of PixMC-Sparse, or "
                "--agent zero or random"
            )
        name = config.what.replace("/", "-").replace(":", "-")
        return task, None, config.video or Path(f"{name}.mp4")
    folder = Path(config.what)
    if not folder.is_dir():
        raise ValueError(
            f"{config.what} is no run folder: give one, or a task with --agent zero, random or "
            "expert, or with --pretrained"
        )
    loaded = load_agent(folder, config.checkpoint, config.trust_modules)
    return loaded.config, loaded.policy, config.video or folder / "videos" / "play.mp4"


class UndrawnError(ValueError):
    """Environments cannot be drawn, or no video of them written."""


def drawn(config: TrainConfig) -> VectorEnv[Any, Any, Any]:
    """One environment of a task that is drawn; an error that says why it cannot be."""
    env = None
    try:
        ffmpeg()
        env = make_env(config, 1, render_mode="rgb_array")
        env.reset(seed=0)
        rendered: Any = env.render()
        if rendered is None or rendered[0] is None:
            raise ValueError("its render() returns nothing")
    except Exception as error:  # whatever a user's environment or a graphics library raises
        if env is not None:
            env.close()
        why = str(error) or f"its renderer raises {type(error).__name__}"
        raise UndrawnError(f"{config.task} cannot be drawn: {why}") from error
    return env


def play(
    env: VectorEnv[Any, Any, Any],
    agent: Policy,
    path: Path,
    *,
    seed: int,
    episodes: int,
    ended: Callable[[Evaluation], None] = lambda outcome: None,
) -> None:
    """Plays episodes in one environment, then closes it; writes a video if it is drawn."""
    frames = rollout_images(env, agent, seed=seed, episodes=episodes, on_end=ended)
    most, video = episodes * episode_steps(env), bool(env.render_mode)
    title, unit = (f"-> {path}", "frames") if video else ("playing", "steps")
    try:
        with Display(most, title, unit=unit, console=Console(stderr=True)) as display:
            if video:
                fps = env.metadata.get("render_fps", UNKNOWN_FPS)
                write_video(path, display.track(frames), fps=fps)
            else:
                deque(display.track(frames), maxlen=0)
    finally:
        env.close()


class Untrained:
    """A policy that has learned nothing.

    Args:
        kind: "zero", "random" or "expert".
        task: The task's name.
        env: One environment of it.
        seed: Of random actions.
    """

    def __init__(self, kind: str, task: str, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        self._act: Callable[[], Any]
        space = env.action_space
        if kind == "expert":
            from mimex.envs.experts import expert_for  # loads MuJoCo

            simulation: Any = env.unwrapped
            expert = expert_for(task)(env)

            def follow_plan() -> Any:
                expert.reset(simulation.get_state()["steps"] == 0)  # where an episode begins
                return expert.act(env)

            self._act = follow_plan
        elif kind == "random":
            space.seed(seed)
            self._act = space.sample
        else:
            zeros = create_empty_array(env.single_action_space, env.num_envs)
            if not space.contains(zeros):
                raise ValueError(
                    f"--agent is 'zero', but {task} has no such action (its action space is "
                    f"{env.single_action_space}): use --agent random"
                )
            self._act = lambda: zeros

    def policy(self, observation: Any, *, deterministic: bool = True, step: int = 0) -> Any:
        """The next actions, whatever the observation."""
        return self._act()
