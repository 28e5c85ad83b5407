"""`mimex train`: one run, from its beginning or from where it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from mimex.agents.factory import seed_for
from mimex.commands.build import make_env, make_training, reseed
from mimex.commands.processes import (
    LOST,
    choose_device,
    init_other,
    leave,
    rank_of_this,
    spawn,
    with_rank,
)
from mimex.config import MAY_CHANGE, TrainConfig, parse
from mimex.nn import processes
from mimex.nn.parallel import available_cores, use_workers
from mimex.nn.processes import LostProcessError, Rank
from mimex.track import make_logger
from mimex.track.display import Display, lasting_output
from mimex.track.sinks import JSONLines, Logger, RunInfo, Sink
from mimex.train.checkpoint import Checkpoints
from mimex.train.folder import RunFolder
from mimex.train.novelty import remove_after
from mimex.train.ranks import broadcast, own, size_of
from mimex.train.runner import ROWS, UNFINISHED, Runner, Schedule, Training, Worker
from mimex.train.signals import StopRequest


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and trains; or trains with the process that has read it."""
    this = rank_of_this()
    if this is None:
        return train(parse(arguments).checked())
    leave(follow(this) if this.rank > 0 else train(parse(arguments).checked()))


@lasting_output()
def train(config: TrainConfig) -> int:
    """Trains to the end, or until Ctrl-C or SIGTERM; then the same call resumes.

    Returns:
        0 at the end, and 128 plus its number after a signal.
    """
    config, this = with_rank(config)
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(config.folder))
        stop = stack.enter_context(StopRequest())
        stack.enter_context(processes.at(this))
        checkpoints = Checkpoints(folder.checkpoints)
        begun_with = (folder.config or {}).get("horizon")
        config = config.continuing(folder.config)
        training = _prepared(config, this)
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
        stack.enter_context(spawn(this))
        if this.size > 1:
            broadcast({"config": config.to_dict(), "state": None if saved is None else saved[1]})
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
        unit = config.family.unit
        display = stack.enter_context(
            Display(config.steps, title, unit=unit, start_step=training.step)
        )
        for note in notes:
            display.note(note)
        runner = Runner(
            training,
            _schedule(config),
            folder,
            stop,
            checkpoints=checkpoints,
            logger=logger,
            display=display,
            eval_env=eval_env,
            eval_seed=seed_for(config, "evaluation"),
            unfinished=[] if saved is None else saved[1].get(UNFINISHED, []),
        )
        runner.run()
        if stop.signal is not None:
            display.note(
                f"stopped by {stop.signal.name} at step {training.step:,} and saved; the same "
                "command continues"
            )
            return 128 + stop.signal
        if runner.futile:
            display.note(
                f"gave up: no positive reward in the first {config.futility:.0%} of the steps "
                "(--futility)"
            )
        display.note(f"done: {training.step:,} steps in {folder.path}")
    return 0


def follow(this: Rank) -> int:
    """Trains in step with the first process, which sends the settings and ends the run."""
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        stack.enter_context(processes.at(this))
        try:
            init_other()
            sent = broadcast(None)
            config, state = TrainConfig.from_dict(sent["config"]).checked(), sent["state"]
            training = _prepared(config, this)
            stack.callback(training.env.close)
            if state is not None:
                _load(config, training, state)
            worker = Worker(training, _schedule(config), config.folder, stop)
            worker.follow((state or {}).get(UNFINISHED, []))
        except (LostProcessError, KeyboardInterrupt):
            return LOST  # the first process reports it
    return 0


def _schedule(config: TrainConfig) -> Schedule:
    every = config.eval.every, config.track.checkpoint_every
    return Schedule(config.steps, *every, futility=config.futility)


def _prepared(config: TrainConfig, this: Rank) -> Training:
    """This process's share of a new run."""
    choose_device(config, this)
    threads = config.threads or max(1, available_cores() // this.local_size)
    use_workers(threads)
    return make_training(config if this.size == 1 else replace(config, threads=threads))


def _load(config: TrainConfig, training: Training, state: Mapping[str, Any]) -> list[str]:
    """Restores a run; returns notes for the user."""
    before, now = size_of(state), processes.size()
    if before != now:
        reseed(config, training, int(state["step"]))
    goes_on = training.load_state_dict(own(state, training.without_environments()))
    notes = [f"continuing from step {training.step:,}"]
    if before != now:
        notes.append(f"with {now} processes instead of {before}: new episodes, new random numbers")
    elif not goes_on:
        notes.append(
            f"with new episodes: {config.task} or its buffer could not save those that ran"
        )
    return notes


def _sinks(config: TrainConfig, folder: RunFolder, step: int) -> list[Sink]:
    name = "-".join(folder.path.resolve().parts[-2:])  # a/seed0 and b/seed0 are two runs
    info = RunInfo(folder.path, name, config.track.project, step, config.to_dict())
    return [JSONLines(folder.metrics), *(make_logger(each, info) for each in config.track.loggers)]
