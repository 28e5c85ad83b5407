"""`mimex play`: a video of a run's policy, or of a task's scripted expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from gymnasium.error import Error as GymnasiumError
from rich.console import Console

from mimex.commands.build import Which, load_agent, make_env
from mimex.config import TrainConfig
from mimex.contracts import Policy, episode_steps
from mimex.envs.catalog import NAMES
from mimex.envs.nearest import choose
from mimex.envs.settings import PUBLISHED_HZ
from mimex.nn.parallel import use_workers
from mimex.track.display import Display
from mimex.track.video import write_video
from mimex.train.evaluate import pictures

UNKNOWN_FPS = 30
"""Of videos where environments do not say how fast they are."""


@dataclass(frozen=True)
class PlayConfig:
    """Make a video of a run's policy, or with --expert of a task's scripted solution."""

    what: tyro.conf.Positional[str]
    """A run folder; with --expert a task, for example FrankaPick."""
    expert: bool = False
    """Let the task's scripted expert play."""
    video: Path | None = None
    """The mp4 to write; by default videos/play.mp4 in the run folder, or TASK.mp4 here."""
    episodes: int = 1
    """How many, for a run."""
    seed: int = 0
    """Of the first start."""
    checkpoint: Which = "latest"
    """Which of the run's checkpoints."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and plays."""
    config = tyro.cli(PlayConfig, args=arguments, prog="mimex play")
    if config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    use_workers(1)
    if config.expert:
        path = _expert(config)
    elif Path(config.what).is_dir():
        trained, agent, _ = load_agent(Path(config.what), config.checkpoint)
        path = config.video or Path(config.what) / "videos" / "play.mp4"
        write_play(path, trained, agent, config.seed, config.episodes)
    elif config.what in NAMES:
        raise ValueError(
            f"{config.what} is a task: add --expert to see its scripted solution, or give the "
            "folder of a run"
        )
    else:
        raise ValueError(f"{config.what} is neither a run folder nor, with --expert, a task")
    print(path)
    return 0


def write_play(path: Path, config: TrainConfig, agent: Policy, seed: int, episodes: int) -> None:
    """Writes a video of an agent."""
    env = make_env(config, 1, render_mode="rgb_array")
    frames = pictures(env, agent, seed=seed, episodes=episodes)
    most = episodes * episode_steps(env)
    try:
        with Display(most, f"-> {path}", unit="frames", console=Console(stderr=True)) as display:
            fps = env.metadata.get("render_fps", UNKNOWN_FPS)
            write_video(path, display.over(frames), fps=fps)
    except GymnasiumError as error:  # of gym/: a package for drawing is missing
        raise ValueError(f"{config.task} cannot be drawn: {error}") from error
    finally:
        env.close()


def _expert(config: PlayConfig) -> Path:
    from mimex.envs.experts import demonstrate  # loads MuJoCo

    task = choose("task", config.what, NAMES)
    path = config.video or Path(f"{task}.mp4")
    write_video(path, demonstrate(task, config.seed), fps=PUBLISHED_HZ)
    return path
