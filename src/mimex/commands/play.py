"""`mimex play`: run episodes of a policy and record a video."""

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

DEFAULT_FPS = 30
"""Frame rate for environments that do not report one."""


@dataclass(frozen=True)
class PlayConfig:
    """Run episodes of a policy, print their outcome and record a video."""

    what: tyro.conf.Positional[str]
    """Run folder; with --agent or --pretrained a task, such as FrankaPick."""
    agent: Literal["zero", "random", "expert"] | None = None
    """Policy without training: zero actions, random actions, or the scripted expert (only
    PixMC-Sparse)."""
    pretrained: bool = False
    """Use the pretrained policy of a task, or a .safetensors file of `mimex export`."""
    video: Path | None = None
    """The mp4 file to write; by default videos/play.mp4 in the run folder, or TASK.mp4."""
    episodes: int = 1
    """Number of episodes."""
    seed: int = 0
    """Random seed of the first episode and of random actions."""
    checkpoint: Which = "latest"
    """Checkpoint of the run."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command; returns 1 if a requested video cannot be recorded."""
    config = tyro.cli(PlayConfig, args=arguments, prog="mimex play")
    if config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    use_workers(1)
    settings, policy, path = _select(config)
    problem = None
    try:
        env = make_rendered_env(settings)
    except RenderError as error:
        env, problem = make_env(settings, 1), str(error)
    if config.agent is not None:
        policy = Untrained(config.agent, settings.task, env, config.seed)
    assert policy is not None
    number = 0

    def on_end(outcome: Evaluation) -> None:
        nonlocal number
        number += 1
        success = {None: "", 0: ", no success", 1: ", success"}[outcome.successes]
        steps = f"{outcome.mean_steps:.0f} steps"
        print(f"episode {number}: return {outcome.mean_return:.2f} in {steps}{success}", flush=True)

    play(env, policy, path, seed=config.seed, episodes=config.episodes, on_end=on_end)
    if problem is not None:
        print(f"mimex: no video: {problem}", file=sys.stderr)
        return 0 if config.video is None else 1
    print(path)
    return 0


def _select(config: PlayConfig) -> tuple[TrainConfig, Policy | None, Path]:
    """Returns settings, trained policy (if any) and the path of the video."""
    if config.pretrained:
        if config.agent is not None:
            raise ValueError("--agent and --pretrained both select a policy: leave one out")
        trained, policy, _ = load_pretrained(config.what)
        return trained, policy, config.video or Path(f"{Path(config.what).stem}.mp4")
    if config.agent is not None:
        settings = preset("cpu", task=config.what).checked()
        require_expert(config.agent, config.what)
        name = config.what.replace("/", "-").replace(":", "-")
        return settings, None, config.video or Path(f"{name}.mp4")
    folder = Path(config.what)
    if not folder.is_dir():
        raise ValueError(
            f"{config.what} is not a run folder: use one, or a task with --agent zero, random or "
            "expert, or with --pretrained"
        )
    trained, policy, _ = load_agent(folder, config.checkpoint, config.trust_modules)
    return trained, policy, config.video or folder / "videos" / "play.mp4"


def require_expert(agent: str | None, task: str) -> None:
    """Raises an error if a task has no scripted expert, but --agent asks for it."""
    if agent == "expert" and task not in NAMES:
        raise ValueError(
            f"--agent is 'expert', but {task} has none: use a task of PixMC-Sparse, or --agent "
            "zero or random"
        )


class RenderError(ValueError):
    """An environment cannot be rendered, or no video can be written."""


def make_rendered_env(config: TrainConfig) -> VectorEnv[Any, Any, Any]:
    """Creates one environment with rendering; raises ``RenderError`` if that is not possible."""
    env = None
    try:
        ffmpeg()
        env = make_env(config, 1, render_mode="rgb_array")
        env.reset(seed=0)
        rendered: Any = env.render()
        if rendered is None or rendered[0] is None:
            raise ValueError("its render() returns None")
    except Exception as error:  # of any type, from a user's environment or a graphics library
        if env is not None:
            env.close()
        why = str(error) or f"its renderer raises {type(error).__name__}"
        raise RenderError(f"{config.task} cannot be rendered: {why}") from error
    return env


def play(
    env: VectorEnv[Any, Any, Any],
    policy: Policy,
    path: Path,
    *,
    seed: int,
    episodes: int,
    on_end: Callable[[Evaluation], None] = lambda outcome: None,
) -> None:
    """Runs episodes in one environment, with a video if it is rendered, and closes it."""
    frames = rollout_images(env, policy, seed=seed, episodes=episodes, on_end=on_end)
    most, video = episodes * episode_steps(env), bool(env.render_mode)
    title, unit = (f"-> {path}", "frames") if video else ("playing", "steps")
    try:
        with Display(most, title, unit=unit, console=Console(stderr=True)) as display:
            if video:
                fps = env.metadata.get("render_fps", DEFAULT_FPS)
                write_video(path, display.track(frames), fps=fps)
            else:
                deque(display.track(frames), maxlen=0)
    finally:
        env.close()


class Untrained:
    """A policy without training, of kind "zero", "random" or "expert"."""

    def __init__(self, kind: str, task: str, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        self._act: Callable[[], Any]
        space = env.action_space
        if kind == "expert":
            from mimex.envs.experts import expert_for  # loads MuJoCo

            simulation: Any = env.unwrapped
            expert = expert_for(task)(env)

            def act() -> Any:
                expert.reset(simulation.get_state()["steps"] == 0)  # where an episode begins
                return expert.act(env)

            self._act = act
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
        """The next actions, independent of the observation."""
        return self._act()
