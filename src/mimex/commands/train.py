"""`mimex train`: one run, from its beginning or from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any

from gymnasium.vector import VectorEnv

from mimex.agents.errors import NotFiniteError
from mimex.agents.factory import seed_for
from mimex.commands.build import draw_anew, make_env, make_training
from mimex.commands.processes import (
    LOST,
    beside,
    choose_device,
    leave,
    meet_first,
    place_of_this,
    with_place,
)
from mimex.config import MAY_CHANGE, TrainConfig, family_of, parse
from mimex.contracts import episode_steps
from mimex.files import sync
from mimex.nn import processes
from mimex.nn.parallel import available_cores, keep_memory, use_workers
from mimex.nn.processes import LostProcessError, Place
from mimex.track.display import Display, lasting_output
from mimex.track.sinks import Hosted, JSONLines, Logger, Sink, TensorBoard
from mimex.train import checkpoint
from mimex.train.checkpoint import Checkpoints
from mimex.train.episodes import Episodes
from mimex.train.evaluate import Evaluation, evaluate
from mimex.train.folder import RunFolder
from mimex.train.health import health_after
from mimex.train.loop import Training
from mimex.train.novelty import remove_after
from mimex.train.ranks import gathered, own, size_of, tell
from mimex.train.signals import StopRequest
from mimex.types import Metrics

UNFINISHED = "unfinished"
"""In a checkpoint, a list with the metrics of the row whose evaluation was given up, which the run
that continues makes first."""


ROWS = "rows"
"""In a checkpoint, how many rows of metrics there were."""


RECORD, SAVE, GO_ON, END = "record", "save", "go on", "end"
"""What the first process says to the others: when observers have written their records, before it
saves, after each row, at the end."""


class FailedUpdateError(RuntimeError):
    """An update met numbers that are not finite."""


class StoppedError(Exception):
    """An evaluation was given up, because the run has to end."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and trains; or trains with the process that has read it."""
    place = place_of_this()
    if place is None:
        return train(parse(arguments).checked())
    leave(follow(place) if place.rank > 0 else train(parse(arguments).checked()))


@lasting_output()
def train(config: TrainConfig) -> int:
    """Trains to the end, or until Ctrl-C or SIGTERM; then the same call continues.

    Returns:
        0 at the end, and 128 plus its number after a signal.
    """
    config, place = with_place(config)
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(config.folder))
        stop = stack.enter_context(StopRequest())
        stack.enter_context(processes.at(place))
        checkpoints = Checkpoints(folder.checkpoints)
        begun_with = (folder.config or {}).get("horizon")
        config = config.continuing(folder.config)
        training = _prepared(config, place)
        stack.callback(training.env.close)
        eval_env = make_env(config, config.eval.episodes)
        stack.callback(eval_env.close)
        # What makes no run, or cannot be continued, leaves no trace: the folder is claimed last.
        settings = config.to_dict(), MAY_CHANGE, TrainConfig(config.task).to_dict()
        folder.check(*settings)
        saved = checkpoints.latest()
        loaded: list[str] = []
        if saved is not None:
            with checkpoints.fitting():
                loaded = _load(config, training, saved[1])
        stack.enter_context(beside(place))
        if place.size > 1:
            tell({"config": config.to_dict(), "state": None if saved is None else saved[1]})
        notes = folder.restore_metrics(
            None if saved is None else (saved[0], saved[1].get(ROWS)),
            min(config.eval.every, config.track.checkpoint_every),
        )
        notes += [*folder.claim(*settings), *loaded]
        if begun_with not in (None, config.horizon):
            notes.append(f"schedules run over {config.horizon} steps instead of {begun_with}")
        checkpoints.redo_best()
        remove_after(folder.path, training.step)
        logger = stack.enter_context(Logger(_sinks(config, folder, training.step)))
        title = f"{config.title}, seed {config.seed} -> {folder.path}"
        unit = family_of(config.task).unit
        display = stack.enter_context(
            Display(config.steps, title, unit=unit, start_step=training.step)
        )
        for note in notes:
            display.note(note)
        health = health_after(folder.metrics)
        before = saved_at = training.step
        unfinished = [] if saved is None else saved[1].get(UNFINISHED, [])
        learning = _learning(config, training, stop, display.advance)
        if not unfinished and _futile(config, training):
            learning = iter(())  # it gave up before
        for metrics in chain(unfinished, learning):
            futile = _futile(config, training)
            done = training.step >= config.steps or futile
            if futile:
                metrics["train/gave_up"] = 1.0
            score = None
            if done or metrics in unfinished or _passes(config.eval.every, before, training.step):
                try:
                    with training.clock("evaluating"):
                        reports = "train/success" in metrics
                        result = _evaluated(config, eval_env, training, stop, display, reports)
                        folder.require_same()
                        training.record(folder.path)
                        processes.every(RECORD)
                except StoppedError:
                    _save(folder, checkpoints, training, unfinished=[metrics])
                    saved_at = training.step
                    break
                metrics |= result.metrics()
                score = result.score
            logger.log(training.step, metrics)
            folder.rows += 1
            display.update(training.step, metrics)
            for words in health.look(metrics):
                display.note(f"step {training.step:,}: {words}")
            due = _passes(config.track.checkpoint_every, before, training.step)
            if done or score is not None or due:
                _save(folder, checkpoints, training, score)
                saved_at = training.step
            before = training.step
            if futile:
                break
            processes.every(GO_ON)
        if stop.signal is not None and training.step > saved_at:
            _save(folder, checkpoints, training)
        processes.every(END)
        if stop.signal is not None:
            display.note(
                f"stopped by {stop.signal.name} at step {training.step:,} and saved; the same "
                "command continues"
            )
            return 128 + stop.signal
        if _futile(config, training):
            display.note(
                f"gave up: no positive reward in the first {config.futility:.0%} of the steps "
                "(--futility)"
            )
        display.note(f"done: {training.step:,} steps in {folder.path}")
    return 0


def follow(place: Place) -> int:
    """Trains beside the first process, which says what, when to save, and when to end."""
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        stack.enter_context(processes.at(place))
        try:
            meet_first()
            told = tell(None)
            config, state = TrainConfig.from_dict(told["config"]).checked(), told["state"]
            training = _prepared(config, place)
            stack.callback(training.env.close)
            if state is not None:
                _load(config, training, state)
            learning = _learning(config, training, stop)
            for _ in chain((state or {}).get(UNFINISHED, []), learning):
                if not _obeyed(training):
                    return 0
            _obeyed(training)
        except (LostProcessError, KeyboardInterrupt):
            return LOST  # the first process tells
    return 0


def _obeyed(training: Training) -> bool:
    """Does what the first process says after a row; whether the run goes on then."""
    while (word := processes.every(None)[0]) in (RECORD, SAVE):
        if word == SAVE:
            gathered(training.state_dict())
        else:
            training.record(None)
    return bool(word == GO_ON)


def _prepared(config: TrainConfig, place: Place) -> Training:
    """This process's share of a run that has not begun."""
    keep_memory()
    choose_device(config, place)
    threads = config.threads or max(1, available_cores() // place.local_size)
    use_workers(threads)
    return make_training(config if place.size == 1 else replace(config, threads=threads))


def _load(config: TrainConfig, training: Training, state: Mapping[str, Any]) -> list[str]:
    """Continues a run from its state; returns what whoever continues it should know."""
    before, now = size_of(state), processes.size()
    if before != now:
        draw_anew(config, training, int(state["step"]))
    goes_on = training.load_state_dict(own(state, training.without_environments()))
    notes = [f"continuing from step {training.step:,}"]
    if before != now:
        notes.append(f"with {now} processes instead of {before}: new episodes, new random numbers")
    elif not goes_on:
        notes.append(
            f"with new episodes: {config.task} or its buffer could not save those that ran"
        )
    return notes


def _evaluated(
    config: TrainConfig,
    env: VectorEnv[Any, Any, Any],
    training: Training,
    stop: StopRequest,
    display: Display,
    reports_success: bool,
) -> Evaluation:
    steps = episode_steps(env)

    def progress(made: int) -> None:
        if stop:
            raise StoppedError
        display.advance(training.step, f"evaluating: step {made} of {steps}")

    seed = seed_for(config, "evaluation")
    return evaluate(
        env,
        training.agent.algorithm,
        seed=seed,
        reports_success=reports_success,
        progress=progress,
    )


def _save(
    folder: RunFolder,
    checkpoints: Checkpoints,
    training: Training,
    score: float | None = None,
    unfinished: Sequence[Metrics] = (),
) -> None:
    folder.require_same()
    # What a checkpoint counts on comes before it.
    sync(folder.metrics)
    sync(folder.path)
    training.agent.save()
    processes.every(SAVE)
    state = gathered(training.state_dict()) | {ROWS: folder.rows}
    state |= {UNFINISHED: list(unfinished)} if unfinished else {}
    checkpoints.save(training.step, state, best=score)


def _learning(
    config: TrainConfig,
    training: Training,
    stop: StopRequest,
    progress: Callable[[int], None] = lambda step: None,
) -> Iterator[Metrics]:
    """Rows; where an update fails on its numbers, what led there is saved and the update named."""
    try:
        yield from training.rows(config.steps, stop.agreed, progress)
    except (NotFiniteError, ValueError) as error:
        name = f"failed-{processes.rank()}" if processes.rank() else "failed"
        path, number = config.folder / f"{name}.safetensors", training.agent.updates + 1
        evidence = {"update": number, "error": str(error), "state": training.state_dict()}
        if isinstance(error, NotFiniteError):
            evidence["minibatch"] = error.batch.arrays()
        evidence |= training.agent.evidence()
        checkpoint.save(path, evidence)
        raise FailedUpdateError(
            f"update {number}, after step {training.step:,}, failed: {error} The "
            f"batch and the state are in {path}; checkpoints before it are intact."
        ) from error


def _futile(config: TrainConfig, training: Training) -> bool:
    """Whether a run has received no reward for so long that it ends."""
    episodes = training.observers["episodes"]
    assert isinstance(episodes, Episodes)
    late = training.step >= config.futility * config.steps
    return config.futility < 1 and late and not episodes.rewarded


def _passes(every: int, before: int, now: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every


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
