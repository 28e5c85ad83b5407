"""`mimex train`: one run, from its beginning or from where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import tyro

from mimex.agents.ppo import NotFiniteError
from mimex.commands.build import make_env, make_training, seed_for
from mimex.config import MAY_CHANGE, TrainConfig, preset
from mimex.nn.parallel import available_cores, keep_memory, use_workers
from mimex.track.display import Display
from mimex.track.logger import Logger, Sink
from mimex.track.sinks import Hosted, JSONLines, TensorBoard
from mimex.train import checkpoint
from mimex.train.checkpoint import Checkpoints
from mimex.train.evaluate import evaluate
from mimex.train.folder import RunFolder
from mimex.train.on_policy import updates
from mimex.train.signals import StopRequest
from mimex.train.training import Training
from mimex.types import Metrics


class FailedUpdateError(RuntimeError):
    """An update met numbers that are not finite."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and trains."""
    chosen = (_chosen(arguments, "--preset", "cpu"), _chosen(arguments, "--observation", "oracle"))
    defaults = preset(*chosen, task=tyro.MISSING)
    config = tyro.cli(TrainConfig, args=arguments, default=defaults, prog="mimex train")
    return train(config.checked())


def train(config: TrainConfig) -> int:
    """Trains to the end, or until Ctrl-C or SIGTERM; then the same call continues.

    Returns:
        0 at the end, and 128 plus its number after a signal.
    """
    keep_memory()
    use_workers(config.threads or available_cores())
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(config.folder))
        stop = stack.enter_context(StopRequest())
        checkpoints = Checkpoints(folder.checkpoints)
        training = make_training(config)
        stack.callback(training.env.close)
        eval_env = make_env(config, config.eval.episodes)
        stack.callback(eval_env.close)
        folder.claim(config.to_dict(), MAY_CHANGE)  # settings that make no run leave no trace
        saved = checkpoints.latest()
        folder.truncate_metrics(None if saved is None else saved[0])
        if saved is not None:
            training.load_state_dict(saved[1])
        logger = stack.enter_context(Logger(_sinks(config, folder, training.step)))
        title = f"{config.task} {config.reward}, bonus {config.bonus}, seed {config.seed}"
        display = stack.enter_context(
            Display(config.steps, f"{title} -> {folder.path}", start_step=training.step)
        )
        if saved is not None:
            display.note(f"continuing from step {training.step:,}")
        for metrics in _learning(config, training, folder):
            done = training.step >= config.steps
            before = training.step - training.rollout.rewards.numel()
            score = None
            if done or _passes(config.eval.every, before, training.step):
                with training.clock("evaluating"):
                    seed = seed_for(config, "evaluation")
                    metrics |= evaluate(eval_env, training.agent, seed=seed).metrics()
                score = metrics["eval/success"]
            logger.log(training.step, metrics)
            display.update(training.step, metrics)
            due = _passes(config.track.checkpoint_every, before, training.step)
            if done or stop or score is not None or due:
                checkpoints.save(training.step, training.state_dict(), best=score)
            if stop and not done:
                break
        if stop.signal is not None:
            display.note(
                f"stopped by {stop.signal.name} at step {training.step:,} and saved; the same "
                "command continues"
            )
            return 128 + stop.signal
        display.note(f"done: {training.step:,} steps in {folder.path}")
    return 0


def _learning(config: TrainConfig, training: Training, folder: RunFolder) -> Iterator[Metrics]:
    """Updates; where one fails on its numbers, what led there is saved and the update named."""
    try:
        yield from updates(training, config.steps)
    except (NotFiniteError, ValueError) as error:
        path = folder.path / "failed.safetensors"
        minibatch = error.batch._asdict() if isinstance(error, NotFiniteError) else None
        rollout = training.rollout
        evidence = {
            "update": training.updates + 1,
            "error": str(error),
            "minibatch": minibatch,
            "rollout": {name: value for name, value in vars(rollout).items() if name[0] != "_"},
            "state": training.state_dict(),
        }
        checkpoint.save(path, evidence)
        raise FailedUpdateError(
            f"update {training.updates + 1}, after step {training.step:,}, failed: {error} The "
            f"batch and the state are in {path}; checkpoints before it are intact."
        ) from error


def _passes(every: int, before: int, now: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every


def _chosen(arguments: Sequence[str], flag: str, default: str) -> str:
    """What a flag says, before the rest can be read: their defaults depend on it."""
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return default


def _sinks(config: TrainConfig, folder: RunFolder, step: int) -> list[Sink]:
    sinks: list[Sink] = [JSONLines(folder.metrics)]
    if config.track.tensorboard:
        sinks.append(TensorBoard(folder.path / "tensorboard", purge_step=step + 1 if step else 0))
    name = "-".join(folder.path.resolve().parts[-2:])  # a/seed0 and b/seed0 are two runs
    if config.track.wandb:
        sinks.append(Hosted("wandb", config.track.wandb, name, config.to_dict()))
    if config.track.trackio:
        sinks.append(Hosted("trackio", config.track.trackio, name, config.to_dict()))
    return sinks
