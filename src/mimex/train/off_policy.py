"""The off-policy loop: act, keep, and every few steps sample, relabel with the bonus, update."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mimex.data.transitions import Transitions
from mimex.train.off_policy_training import OffPolicyTraining
from mimex.train.visits import chosen_windows
from mimex.types import Metrics, Window

PROBE_WINDOWS = 32
"""Windows of the first update whose raw bonus is followed through the run."""


def reports(
    training: OffPolicyTraining,
    total_frames: int,
    stop: object = False,
    progress: Callable[[int], None] = lambda frames: None,
) -> Iterator[Metrics]:
    """Trains until all frames are made, and gives the metrics of each stretch of them.

    Between two reports the caller may evaluate or save.

    Args:
        training: A new one, or one that was loaded.
        total_frames: Frames in all.
        stop: Once it is true, training ends at the next step, within a stretch; the rest of that
            stretch is made, and reported, by the run that continues.
        progress: Is told the frames made so far, often.
    """
    if training.observation is None:
        training.begin()
    every, start = training.settings.report_every, training.step
    while training.step < total_frames and not stop:
        for _ in range(collect(training)):
            training.stretch.add(update(training))
        progress(training.step)
        if training.step // every > (training.step - training.frames_a_round) // every or (
            training.step >= total_frames
        ):
            yield report(training, training.step - start)
            start = training.step


def report(training: OffPolicyTraining, frames: int) -> Metrics:
    """Metrics of the stretch that ends here, of which so many frames were made by this process."""
    metrics = training.episodes.metrics() | training.stretch.take()
    if "explore/first_reward" in metrics:
        metrics["explore/first_reward"] *= training.frames_a_step
    with training.clock("mapping"):
        training.visits.map_stretch()
    metrics["explore/coverage"] = training.visits.map.share
    if training.pays:
        metrics["bonus/beta"] = training.scale.beta  # now, not the stretch's mean
    if training.probe is not None:
        with training.clock("bonus"):
            metrics["bonus/probe"] = float(training.bonus.reward(training.probe).mean())
    metrics["train/updates"] = float(training.updates)
    return metrics | training.clock.read(frames)


def collect(training: OffPolicyTraining) -> int:
    """Makes one step in every environment; returns how many updates are due after it."""
    env, agent, replay, clock = training.env, training.agent, training.replay, training.clock
    with clock("acting"):
        seen = torch.as_tensor(training.observation)
        actions = agent.act(seen, training.agent_steps).numpy()
        if training.visits.due(training.step // training.frames_a_round):
            training.visits.note(training.states())
    with clock("simulation"):
        observation, rewards, terminated, truncated, info = env.step(actions)
    with clock("acting"):
        ended = terminated | truncated
        for row in range(env.num_envs):
            led_to = info["final_obs"][row] if ended[row] else observation[row]
            replay.add(
                training.newest_frame(led_to),
                actions[row],
                float(rewards[row]),
                bool(terminated[row]),
                row,
            )
            if ended[row]:
                replay.start(training.newest_frame(observation[row]), row)
        training.episodes.step(rewards, ended, info)
        training.observation = observation
    before = training.collected
    training.collected += env.num_envs
    training.step += training.frames_a_round
    settings = agent.settings
    if training.collected < settings.seed_steps:
        return 0
    return training.collected // settings.update_every - before // settings.update_every


def update(training: OffPolicyTraining) -> Metrics:
    """Samples a batch, adds the bonus to its rewards, and learns from it."""
    agent, clock = training.agent, training.clock
    metrics, rewards = Metrics(), None
    with clock("sampling"):
        batch = training.replay.sample(agent.settings.batch, training.generator)
    with clock("learning"):
        encoded = agent.encode(batch)
    if encoded.windows is not None:
        with clock("bonus"):
            rewards, metrics = relabel(training, batch, encoded.windows)
    with clock("learning"):
        metrics |= agent.update(batch, training.agent_steps, rewards=rewards, encoded=encoded)
    training.updates += 1
    return metrics


def relabel(
    training: OffPolicyTraining, batch: Transitions, features: Tensor
) -> tuple[Tensor, Metrics]:
    """The rewards ``(B,)`` of a batch with the bonus, which takes one step of learning from it.

    The bonus of the window at its start stands for each of the steps that a sampled transition sums
    up, so that beta means the same for every n-step: the size of the bonus beside the task's reward
    of one step.

    Args:
        training: The run.
        batch: Sampled with windows.
        features: ``(B, L, D)``: what the agent's encoder made of the windows, without gradient.
    """
    assert batch.windows is not None
    window = Window(features, batch.windows.valid, batch.windows.actions)
    if training.probe is None:
        training.probe = chosen_windows(window, slice(PROBE_WINDOWS))
    raw, metrics = training.bonus.learn(window, training.settings.train_fraction)
    training.scale.steps = training.step  # its schedule counts frames, not samples
    rewards = training.scale.combine(batch.rewards / batch.weights, raw)  # of one step
    metrics |= training.scale.metrics(raw, rewards)
    return batch.rewards + rewards.intrinsic * batch.weights, metrics


def gathered(batch: Transitions) -> dict[str, Tensor]:
    """A batch's arrays by name, its observations put together."""
    return {
        "observations": batch.observations[:],
        "actions": batch.actions,
        "rewards": batch.rewards,
        "discounts": batch.discounts,
        "next_observations": batch.next_observations[:],
    }
