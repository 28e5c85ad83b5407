"""The training loop: act, step, observe, update, evaluate, log, save.

``Training`` steps the environments and owns the step counter. ``Runner`` evaluates, logs and saves
between two rows of metrics; with several processes, ``Worker`` is the part that all of them run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Generator

from mimex.agents.errors import NotFiniteError
from mimex.contracts import (
    Agent,
    Callback,
    SavesState,
    Step,
    episode_steps,
    frames_per_step,
    step_env,
)
from mimex.files import sync
from mimex.nn import processes
from mimex.track.clock import Clock
from mimex.track.display import Display
from mimex.track.loggers import Loggers
from mimex.train import checkpoint
from mimex.train.checkpoint import Checkpoints
from mimex.train.episodes import Episodes
from mimex.train.evaluate import Evaluation, evaluate
from mimex.train.folder import RunFolder
from mimex.train.health import health_after
from mimex.train.ranks import gather_state
from mimex.train.restarts import Restarts
from mimex.train.signals import StopRequest
from mimex.types import Metrics

UNFINISHED = "unfinished"
"""Key of a checkpoint: metrics of the row whose evaluation was interrupted, as a list. The resumed
run evaluates it first."""

ROWS = "rows"
"""Key of a checkpoint: the number of rows of metrics so far."""

RECORD, SAVE, CONTINUE, END = "record", "save", "continue", "end"
"""Messages of rank 0 to the other processes after a row."""


class FailedUpdateError(RuntimeError):
    """An update failed on values that are not finite."""


class StoppedError(Exception):
    """An evaluation was interrupted by a stop request."""


@dataclass(frozen=True)
class Schedule:
    """When a run evaluates, saves and ends, in frames.

    Attributes:
        steps: Length of the run.
        eval_every: Frames between evaluations.
        checkpoint_every: Frames between checkpoints.
        futility: Fraction of the run after which it ends without any positive reward.
    """

    steps: int
    eval_every: int
    checkpoint_every: int
    futility: float = 1.0


class Training:
    """Environments, agent and callbacks of a run.

    Callbacks have names, which are used in checkpoints. ``stagger`` samples the initial time step
    of the first episodes, so that environments do not reset in sync; None starts all at 0.

    Attributes:
        step: Frames so far, over all environments of all processes.
        observation: The current observation; None before the run has begun.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        agent: Agent,
        callbacks: Mapping[str, Callback],
        *,
        seed: int,
        restarts: Restarts | None = None,
        stagger: Generator | None = None,
        clock: Clock,
    ) -> None:
        self.env, self.agent, self.callbacks = env, agent, dict(callbacks)
        self.restarts = restarts
        self.seed, self.stagger, self.clock = seed, stagger, clock
        self.observation: Any = None
        self.step = 0
        self._frames = frames_per_step(env) * env.num_envs * processes.size()

    def train(
        self,
        total: int,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int], None] = lambda step: None,
    ) -> Iterator[Metrics]:
        """Trains, and yields rows of metrics.

        Args:
            total: Length of the run in frames.
            stop: Called when the agent can be saved; training ends if it returns True. The resumed
                run yields the unfinished row.
            progress: Called with the frames so far after each step.
        """
        if self.observation is None:
            self._begin(self.seed)
        reported = self.step
        while self.step < total or not self.agent.can_checkpoint:
            if self.agent.can_checkpoint and stop():
                return
            metrics = self.advance(total)
            progress(self.step)
            if metrics is not None:
                yield metrics | self.clock.read(self.step - reported)
                reported = self.step

    def advance(self, total: int) -> Metrics | None:
        """Steps every environment and updates; returns metrics if a row is due, or at the end."""
        agent, warming_up, observation = self.agent, self.agent.warming_up, self.observation
        actions = agent.act(observation, self.step)
        with self.clock("simulation"):
            step = Step(observation, actions, *step_env(self.env, actions))
            if self.restarts is not None:
                step = self.restarts.step(step)
        agent.observe(step)
        for callback in self.callbacks.values():
            callback.step(step)
        self.observation = step.next_observation
        self.step += self._frames
        metrics = agent.update(self.step, last=self.step >= total)
        if warming_up and not agent.warming_up:
            self._begin(None)
        if metrics is None:
            return None
        with self.clock("observing"):
            for callback in self.callbacks.values():
                metrics |= callback.metrics(agent)
        return metrics if self.restarts is None else metrics | self.restarts.metrics()

    def _begin(self, seed: int | None, *, resumed: bool = False) -> None:
        """Resets all environments."""
        self.observation, _ = self.env.reset(seed=seed)
        if not self.agent.warming_up:
            self._stagger_episodes()
        self.agent.begin(self.observation)
        if self.restarts is not None:
            self.restarts.begin()
        for callback in self.callbacks.values():
            (callback.interrupt if resumed else callback.begin)(self.observation)

    def _stagger_episodes(self) -> None:
        simulation: Any = self.env.unwrapped
        if self.stagger is None or not isinstance(simulation, SavesState):
            return
        state = simulation.get_state()
        if "steps" in state:
            episode_step = torch.randint(
                episode_steps(self.env), state["steps"].shape, generator=self.stagger
            )
            simulation.set_state(state | {"steps": episode_step.numpy()})

    def record(self, run: Path | None) -> None:
        """Calls the callbacks' ``record``; None writes nothing."""
        for callback in self.callbacks.values():
            callback.record(run, self.step, self.agent)

    def state_dict(self) -> dict[str, Any]:
        """The exact state; new episodes begin after loading if environments cannot save theirs."""
        simulation: Any = self.env.unwrapped
        saves = isinstance(simulation, SavesState)
        return {
            "step": self.step,
            **self.without_environments(),
            "environment": simulation.get_state() if saves else None,
            "observation": self.observation if saves else None,
        }

    def without_environments(self) -> dict[str, Any]:
        """The state of agent and callbacks."""
        return {
            "agent": self.agent.state_dict(),
            "restarts": None if self.restarts is None else self.restarts.state_dict(),
            "callbacks": {name: each.state_dict() for name, each in self.callbacks.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restores a state of ``state_dict``.

        Returns:
            Whether episodes continue; otherwise new ones have begun.
        """
        self.step = int(state["step"])
        self.agent.load_state_dict(state["agent"])
        for name, callback in self.callbacks.items():
            callback.load_state_dict(state["callbacks"][name])
        if self.restarts is not None:
            self.restarts.load_state_dict(state["restarts"])
        simulation = self.env.unwrapped
        if state["environment"] is not None and isinstance(simulation, SavesState):
            simulation.set_state(state["environment"])
            self.observation = state["observation"]
            if self.agent.continues_episodes:
                return True
            self._begin(None, resumed=True)
        else:
            # Not the initial seed, which would repeat the first episodes.
            self._begin(self.seed + self.step, resumed=True)
        return False


class Worker:
    """A run in one of its processes."""

    def __init__(
        self, training: Training, schedule: Schedule, folder: Path, stop: StopRequest
    ) -> None:
        self.training, self.schedule, self.stop = training, schedule, stop
        self._path = folder

    def train(self, progress: Callable[[int], None] = lambda step: None) -> Iterator[Metrics]:
        """Yields rows of metrics; if an update fails, its batch and the state are saved."""
        training = self.training
        try:
            yield from training.train(self.schedule.steps, self.stop.in_any_process, progress)
        except (NotFiniteError, ValueError) as error:
            name = f"failed-{processes.rank()}" if processes.rank() else "failed"
            path, number = self._path / f"{name}.safetensors", training.agent.updates + 1
            failure = {"update": number, "error": str(error), "state": training.state_dict()}
            if isinstance(error, NotFiniteError):
                failure["minibatch"] = error.batch.arrays()
            failure |= training.agent.debug_state()
            checkpoint.save(path, failure)
            raise FailedUpdateError(
                f"update {number}, after step {training.step:,}, failed: {error} The batch and the "
                f"state are in {path}; earlier checkpoints are intact."
            ) from error

    def follow(self, unfinished: Sequence[Metrics] = ()) -> None:
        """Trains in sync with rank 0, until it ends the run."""
        for _ in chain(unfinished, self.train()):
            if not self._handle_messages():
                return
        self._handle_messages()

    def _handle_messages(self) -> bool:
        """Executes the messages of rank 0 after a row; returns whether the run continues."""
        while (message := processes.all_gather_object(None)[0]) in (RECORD, SAVE):
            if message == SAVE:
                gather_state(self.training.state_dict())
            else:
                self.training.record(None)
        return bool(message == CONTINUE)


class Runner(Worker):
    """A run in its first process (rank 0), which also evaluates, logs and saves.

    An evaluation has one episode per environment of ``eval_env``. ``unfinished`` is the row of the
    checkpoint whose evaluation was interrupted, if any.
    """

    def __init__(
        self,
        training: Training,
        schedule: Schedule,
        folder: RunFolder,
        stop: StopRequest,
        *,
        checkpoints: Checkpoints,
        loggers: Loggers,
        display: Display,
        eval_env: VectorEnv[Any, Any, Any],
        eval_seed: int,
        unfinished: Sequence[Metrics] = (),
    ) -> None:
        super().__init__(training, schedule, folder.path, stop)
        self.folder, self.checkpoints, self.loggers = folder, checkpoints, loggers
        self.display, self.eval_env, self.eval_seed = display, eval_env, eval_seed
        self.unfinished = list(unfinished)
        self.health = health_after(folder.metrics)
        self._last_row = self._saved_at = training.step

    def run(self) -> None:
        """Trains until the last step, a stop request, or futility."""
        training, schedule = self.training, self.schedule
        gave_up = self.futile and not self.unfinished  # in an earlier process
        for metrics in chain(self.unfinished, () if gave_up else self.train(self.display.advance)):
            ends = training.step >= schedule.steps or self.futile
            if self.futile:
                metrics["train/gave_up"] = 1.0
            score = None
            if ends or metrics in self.unfinished or self._due(schedule.eval_every):
                try:
                    result = self.evaluate(reports_success="train/success" in metrics)
                except StoppedError:
                    self.save(unfinished=[metrics])
                    break
                metrics |= result.metrics()
                score = result.score
            self.log(metrics)
            if ends or score is not None or self._due(schedule.checkpoint_every):
                self.save(score)
            self._last_row = training.step
            if self.futile:
                break
            processes.all_gather_object(CONTINUE)
        if self.stop and training.step > self._saved_at:
            self.save()
        processes.all_gather_object(END)

    @property
    def futile(self) -> bool:
        """Whether the run ends because it has received no positive reward."""
        episodes, schedule = self.training.callbacks["episodes"], self.schedule
        assert isinstance(episodes, Episodes)
        late = self.training.step >= schedule.futility * schedule.steps
        return schedule.futility < 1 and late and not episodes.rewarded

    def _due(self, every: int) -> bool:
        """Whether a multiple of ``every`` was passed since the last row."""
        return self.training.step // every > self._last_row // every

    def evaluate(self, *, reports_success: bool) -> Evaluation:
        """Evaluates the policy and writes the callbacks' records.

        Raises:
            StoppedError: If there is a stop request.
        """
        training, length = self.training, episode_steps(self.eval_env)

        def progress(steps: int) -> None:
            if self.stop:
                raise StoppedError
            self.display.advance(training.step, f"evaluating: step {steps} of {length}")

        with training.clock("evaluating"):
            result = evaluate(
                self.eval_env,
                training.agent.algorithm,
                seed=self.eval_seed,
                reports_success=reports_success,
                progress=progress,
            )
            self.folder.require_same()
            training.record(self.folder.path)
            processes.all_gather_object(RECORD)
        return result

    def log(self, metrics: Metrics) -> None:
        """Logs a row, and warnings of the health checks."""
        step = self.training.step
        self.loggers.log(step, metrics)
        self.folder.rows += 1
        self.display.update(step, metrics)
        for warning in self.health.check(metrics):
            self.display.note(f"step {step:,}: {warning}")

    def save(self, score: float | None = None, unfinished: Sequence[Metrics] = ()) -> None:
        """Saves a checkpoint, with the score of an evaluation or the row that lacks one."""
        folder, training = self.folder, self.training
        folder.require_same()
        # Files that a checkpoint relies on are written before it.
        sync(folder.metrics)
        sync(folder.path)
        training.agent.save()
        processes.all_gather_object(SAVE)
        state = gather_state(training.state_dict()) | {ROWS: folder.rows}
        state |= {UNFINISHED: list(unfinished)} if unfinished else {}
        self.checkpoints.save(training.step, state, score=score)
        self._saved_at = training.step
