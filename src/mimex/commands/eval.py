"""`mimex eval`: how good a run's policy is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from mimex.commands.build import Which, load_agent, make_env
from mimex.commands.play import drawn, play
from mimex.commands.pretrained import load_pretrained
from mimex.config import family_of
from mimex.contracts import Policy, episode_steps, frames_per_step
from mimex.nn.parallel import use_workers
from mimex.track.display import Display
from mimex.train.evaluate import evaluate, wilson


@dataclass(frozen=True)
class EvalConfig:
    """Measure a run's policy: return, success rate with a 95 % interval, and a video if asked."""

    run: tyro.conf.Positional[Path]
    """The run folder; with --pretrained a task, for example FrankaPick."""
    pretrained: bool = False
    """Measure the shipped policy of a task; a .safetensors file of `mimex export` works too."""
    episodes: int | None = None
    """How many; None for 256, and for dmc/ 10."""
    seed: int = 1_000_000
    """Of the starts; not those of the evaluations during training."""
    checkpoint: Which = "latest"
    """Which of the run's checkpoints."""
    noise: bool = False
    """Act with the policy's noise, as in training."""
    video: Path | None = None
    """Also write an episode to this mp4."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and evaluates."""
    config = tyro.cli(EvalConfig, args=arguments, prog="mimex eval")
    if config.episodes is not None and config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    use_workers(1)
    agent: Policy
    if config.pretrained:
        trained, agent, step = load_pretrained(str(config.run))
    else:
        loaded = load_agent(config.run, config.checkpoint, config.trust_modules)
        trained, agent, step = loaded.config, loaded.policy, loaded.step
    env = make_env(trained, config.episodes or family_of(trained.task).eval_episodes)
    title = f"{env.num_envs} episodes of {trained.title}"
    try:
        with Display(episode_steps(env), title, console=Console(stderr=True)) as display:
            result = evaluate(
                env,
                agent,
                seed=config.seed,
                deterministic=not config.noise,
                step=step // frames_per_step(env),
                progress=display.advance,
            )
    finally:
        env.close()
    console = Console(highlight=False, markup=False)
    console.print(f"{trained.title}, step {step:,}")
    if result.successes is not None:
        low, high = wilson(result.successes, result.episodes)
        console.print(
            f"success {result.score:.1%} (95 % interval {low:.1%} to {high:.1%}, "
            f"{result.successes} of {result.episodes} episodes)"
        )
    console.print(
        f"return  {result.mean_return:.2f} over {result.episodes} episodes of "
        f"{result.mean_steps:.0f} steps"
    )
    if config.video is not None:
        play(drawn(trained), agent, config.video, seed=config.seed, episodes=1)
        console.print(f"video   {config.video}")
    return 0
