"""`mimex play`: run episodes of a policy, and record a video if asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

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

Kind = Literal["zero", "random", "expert"]
"""Policies without training."""


@dataclass(frozen=True)
class PlayConfig:
    """Run episodes of a policy and print their outcome; with --video, also record them."""

    what: tyro.conf.Positional[str]
    """Run folder; with --agent or --pretrained a task, such as FrankaPick."""
    agent: Kind | None = None
    """Policy without training: zero actions, random actions, or the scripted expert (only
    PixMC-Sparse). --expert is short for --agent expert, and so on."""
    pretrained: bool = False
    """Use the pretrained policy of a task, or a .safetensors file of `mimex export`."""
    video: Path | None = None
    """Also record the episodes to this mp4 file; reports show those in RUN/videos."""
    episodes: int = 1
    """Number of episodes."""
    seed: int = 0
    """Random seed of the first episode and of random actions."""
    checkpoint: Which = "latest"
    """Checkpoint of the run."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    config = tyro.cli(PlayConfig, args=expanded(arguments), prog="mimex play")
    if config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    use_workers(1)
    settings, policy = _select(config)
    env = make_env(settings, 1) if config.video is None else make_rendered_env(settings)
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

    play(env, policy, config.video, seed=config.seed, episodes=config.episodes, on_end=on_end)
    if config.video is not None:
        print(config.video)
    return 0


def expanded(arguments: Sequence[str]) -> list[str]:
    """Replaces --zero, --random and --expert by --agent and the kind."""
    long = {f"--{kind}": ("--agent", kind) for kind in get_args(Kind)}
    return [word for argument in arguments for word in long.get(argument, (argument,))]


def _select(config: PlayConfig) -> tuple[TrainConfig, Policy | None]:
    """Returns the settings and the trained policy, if any."""
    if config.pretrained:
        if config.agent is not None:
            raise ValueError("--agent and --pretrained both select a policy: leave one out")
        trained, policy, _ = load_pretrained(config.what)
        return trained, policy
    if config.agent is not None:
        settings = preset("cpu", task=config.what).checked()
        require_expert(config.agent, config.what)
        return settings, None
    folder = Path(config.what)
    if not folder.is_dir():
        raise ValueError(
            f"{config.what} is not a run folder: use one, or a task with --agent zero, random or "
            "expert, or with --pretrained"
        )
    trained, policy, _ = load_agent(folder, config.checkpoint, config.trust_modules)
    return trained, policy


def require_expert(agent: str | None, task: str) -> None:
    """Raises an error if a task has no scripted expert, but --agent asks for it."""
    if agent == "expert" and task not in NAMES:
        raise ValueError(
            f"--agent is 'expert', but {task} has none: use a task of PixMC-Sparse, or --agent "
            "zero or random"
        )


def make_rendered_env(config: TrainConfig) -> VectorEnv[Any, Any, Any]:
    """Creates one environment with rendering; raises ``ValueError`` if that is not possible."""
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
        raise ValueError(f"{config.task} cannot be rendered: {why}") from error
    return env


def play(
    env: VectorEnv[Any, Any, Any],
    policy: Policy,
    video: Path | None,
    *,
    seed: int,
    episodes: int,
    on_end: Callable[[Evaluation], None] = lambda outcome: None,
) -> None:
    """Runs episodes in one environment, with a video if a path is given, and closes it."""
    frames = rollout_images(env, policy, seed=seed, episodes=episodes, on_end=on_end)
    title, unit = ("playing", "steps") if video is None else (f"-> {video}", "frames")
    most = episodes * episode_steps(env)
    try:
        with Display(most, title, unit=unit, console=Console(stderr=True)) as display:
            if video is None:
                deque(display.track(frames), maxlen=0)
            else:
                fps = env.metadata.get("render_fps", DEFAULT_FPS)
                write_video(video, display.track(frames), fps=fps)
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
