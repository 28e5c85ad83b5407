"""`mimex train`: start or resume a run."""

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
    exit_now,
    init_other,
    own_rank,
    spawn,
    with_rank,
)
from mimex.config import MAY_CHANGE, TrainConfig, parse
from mimex.nn import processes
from mimex.nn.parallel import available_cores, use_workers
from mimex.nn.processes import LostProcessError, Rank
from mimex.track import make_logger
from mimex.track.display import Display, optional_stdout
from mimex.track.jsonl import JSONLines
from mimex.track.loggers import Logger, Loggers, RunInfo
from mimex.train.checkpoint import Checkpoints
from mimex.train.folder import RunFolder
from mimex.train.novelty import remove_after
from mimex.train.ranks import broadcast, local_state, num_processes
from mimex.train.runner import ROWS, UNFINISHED, Runner, Schedule, Training, Worker
from mimex.train.signals import StopRequest


def run(arguments: Sequence[str]) -> int:
    """Runs the command, in any process of the run."""
    this = own_rank()
    if this is None:
        return train(parse(arguments).checked())
    exit_now(follow(this) if this.rank > 0 else train(parse(arguments).checked()))


@optional_stdout()
def train(config: TrainConfig) -> int:
    """Trains to the last step, or until Ctrl-C or SIGTERM; the same call then resumes.

    Returns:
        0 at the end, 128 plus the signal number after a signal.
    """
    config, this = with_rank(config)
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(config.folder))
        stop = stack.enter_context(StopRequest())
        stack.enter_context(processes.at(this))
        checkpoints = Checkpoints(folder.checkpoints)
        begun_with = (folder.config or {}).get("horizon")
        config = config.continuing(folder.config)
        training = _make_training(config, this)
        stack.callback(training.env.close)
        eval_env = make_env(config, config.eval.episodes)
        stack.callback(eval_env.close)
        # The folder is changed only after everything that may fail.
        settings = config.to_dict(), MAY_CHANGE, TrainConfig(config.task).to_dict()
        folder.check(*settings)
        saved = checkpoints.latest()
        loaded: list[str] = []
        if saved is not None:
            with checkpoints.loading():
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
            notes.append(f"schedules have a horizon of {config.horizon} instead of {begun_with}")
        vision = config.vision
        if config.observation == "pixels" and (vision.encoder, vision.checkpoint) == ("vit", None):
            notes.append(
                f"image encoder: the ViT shipped with mimex ({vision.image_size} pixels), in place "
                "of the paper's; --vision.checkpoint FILE uses another, such as MVP's ViT-S/16"
            )
        checkpoints.repair()
        remove_after(folder.path, training.step)
        loggers = stack.enter_context(Loggers(_loggers(config, folder, training.step)))
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
            loggers=loggers,
            display=display,
            eval_env=eval_env,
            eval_seed=seed_for(config, "evaluation"),
            unfinished=[] if saved is None else saved[1].get(UNFINISHED, []),
        )
        runner.run()
        if stop.signal is not None:
            display.note(
                f"stopped by {stop.signal.name} at step {training.step:,} and saved; the same "
                "command resumes"
            )
            return 128 + stop.signal
        if runner.futile:
            display.note(
                f"gave up: no positive reward in the first {config.futility:.0%} of the steps "
                "(--futility)"
            )
        display.note(f"done: {training.step:,} {unit} in {folder.path}")
    return 0


def follow(this: Rank) -> int:
    """Trains in sync with rank 0, which sends the settings and ends the run."""
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        stack.enter_context(processes.at(this))
        try:
            init_other()
            sent = broadcast(None)
            config, state = TrainConfig.from_dict(sent["config"]).checked(), sent["state"]
            training = _make_training(config, this)
            stack.callback(training.env.close)
            if state is not None:
                _load(config, training, state)
            worker = Worker(training, _schedule(config), config.folder, stop)
            worker.follow((state or {}).get(UNFINISHED, []))
        except (LostProcessError, KeyboardInterrupt):
            return LOST  # rank 0 reports it
    return 0


def _schedule(config: TrainConfig) -> Schedule:
    every = config.eval.every, config.track.checkpoint_every
    return Schedule(config.steps, *every, futility=config.futility)


def _make_training(config: TrainConfig, this: Rank) -> Training:
    """Creates this process's part of the run, on its device and threads."""
    choose_device(config, this)
    threads = config.threads or max(1, available_cores() // this.local_size)
    use_workers(threads)
    return make_training(config if this.size == 1 else replace(config, threads=threads))


def _load(config: TrainConfig, training: Training, state: Mapping[str, Any]) -> list[str]:
    """Restores a run; returns notes for the user."""
    before, now = num_processes(state), processes.size()
    if before != now:
        reseed(config, training, int(state["step"]))
    continues = training.load_state_dict(local_state(state, training.without_environments()))
    notes = [f"resuming from step {training.step:,}"]
    if before != now:
        notes.append(f"with {now} processes instead of {before}: new episodes and random numbers")
    elif not continues:
        notes.append(f"with new episodes: {config.task} or its buffer cannot save running ones")
    return notes


def _loggers(config: TrainConfig, folder: RunFolder, step: int) -> list[Logger]:
    name = "-".join(folder.path.resolve().parts[-2:])  # distinguishes a/seed0 from b/seed0
    info = RunInfo(folder.path, name, config.track.project, step, config.to_dict())
    return [JSONLines(folder.metrics), *(make_logger(each, info) for each in config.track.loggers)]
