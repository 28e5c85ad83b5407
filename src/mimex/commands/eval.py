"""`mimex eval`: evaluate a trained policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from mimex.commands.build import Which, load_agent, make_env
from mimex.commands.play import make_rendered_env, play
from mimex.commands.pretrained import load_pretrained
from mimex.config import TrainConfig, family_of
from mimex.contracts import Policy, episode_steps
from mimex.nn.parallel import use_workers
from mimex.track.display import Display
from mimex.train.evaluate import Evaluation, evaluate


@dataclass(frozen=True)
class EvalConfig:
    """Evaluate a policy: return, success rate with a 95 % interval, and optionally a video."""

    run: tyro.conf.Positional[Path]
    """Run folder; with --pretrained a task, such as FrankaPick."""
    pretrained: bool = False
    """Evaluate the pretrained policy of a task, or a .safetensors file of `mimex export`."""
    episodes: int | None = None
    """Number of episodes; by default 256, and 10 for dmc/."""
    seed: int = 1_000_000
    """Random seed of the initial states, other than in evaluations during training."""
    checkpoint: Which = "latest"
    """Checkpoint of the run."""
    video: Path | None = None
    """Also record an episode to this mp4 file."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    config = tyro.cli(EvalConfig, args=arguments, prog="mimex eval")
    if config.episodes is not None and config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    use_workers(1)
    trained, policy, step = (
        load_pretrained(str(config.run))
        if config.pretrained
        else load_agent(config.run, config.checkpoint, config.trust_modules)
    )
    episodes = config.episodes or family_of(trained.task).eval_episodes
    result = evaluate_with_progress(trained, policy, episodes, config.seed)
    console = Console(highlight=False, markup=False)
    console.print(f"{trained.title}, step {step:,}")
    if result.successes is not None:
        console.print(success_line(result))
    console.print(
        f"return  {result.mean_return:.2f} over {result.episodes} episodes of "
        f"{result.mean_steps:.0f} steps"
    )
    if config.video is not None:
        play(make_rendered_env(trained), policy, config.video, seed=config.seed, episodes=1)
        console.print(f"video   {config.video}")
    return 0


def evaluate_with_progress(
    config: TrainConfig, policy: Policy, episodes: int, seed: int
) -> Evaluation:
    """Evaluates a policy, with the progress on standard error."""
    env = make_env(config, episodes)
    title = f"{episodes} episodes of {config.title}"
    try:
        with Display(episode_steps(env), title, console=Console(stderr=True)) as display:
            return evaluate(env, policy, seed=seed, progress=display.advance)
    finally:
        env.close()


def success_line(result: Evaluation) -> str:
    """Describes the success rate of an evaluation and its interval."""
    rate, low, high = (result.metrics()[f"eval/success{x}"] for x in ("", "_low", "_high"))
    return (
        f"success {rate:.1%} (95 % interval {low:.1%} to {high:.1%}, {result.successes} of "
        f"{result.episodes} episodes)"
    )
