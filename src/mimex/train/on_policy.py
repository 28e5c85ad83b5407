"""The on-policy loop: collect, windows, bonus, scale, returns, update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mimex.agents.ppo import PPO, Batch
from mimex.bonus.scale import Rewards
from mimex.data.returns import gae
from mimex.data.rollout import Rollout
from mimex.data.windows import WindowIndex
from mimex.nn.parallel import pieces
from mimex.train.films import most_novel
from mimex.train.training import Training
from mimex.types import Metrics

SCORED_AT_ONCE, SCORED_NUMBERS = 2048, 1 << 22
"""Windows that are gathered to be scored in one go: so many at least, and of narrow ones as many as
have so many numbers (16 MB)."""

PROBE_WINDOWS = 256
"""Windows of the first rollout whose raw bonus is followed through the run."""


def updates(training: Training, total_steps: int) -> Iterator[Metrics]:
    """Trains update by update, and gives the metrics of each, until all steps are made.

    Between two updates the caller may evaluate, save, or stop.

    Args:
        training: A new one, or one that was loaded.
        total_steps: Environment steps in all.
    """
    if training.observation is None:
        warm_up(training)
    while training.step < total_steps:
        yield update(training)


def warm_up(training: Training) -> None:
    """Begins the first episodes.

    Where observations are normalised, a rollout is played before for their statistics alone. Its
    steps count, though nothing else is learned from them.
    """
    training.observation, _ = training.env.reset(seed=training.seeds["environment"])
    if training.agent.settings.normalise_observations:
        collect(training)
        training.agent.encoder.normaliser.settle()
        training.observation, _ = training.env.reset()
        training.step += training.rollout.rewards.numel()
    if training.settings.stagger:
        simulation: Any = training.env.unwrapped
        state = simulation.get_state()
        ages = torch.randint(
            simulation.episode_steps, state["steps"].shape, generator=training.generator
        )
        simulation.set_state(state | {"steps": ages.numpy()})
    training.episodes.begin()


def update(training: Training) -> Metrics:
    """Collects one rollout and learns from it."""
    agent, clock, beta = training.agent, training.clock, training.scale.beta
    collect(training)
    with clock("windows"):
        index = build_windows(training)
    with clock("bonus"):
        raw, bonus_metrics = score(training, index)
        rewards = training.scale.combine(training.rollout.rewards, raw)
        map_novelty(training, index, raw)
    with clock("learning"):
        batch = make_batch(agent, training.rollout, rewards, beta)
        metrics = agent.update(batch, training.step / training.horizon, (1.0, beta)[: agent.heads])
        agent.encoder.normaliser.settle()
    training.step += raw.numel()
    training.updates += 1
    return {
        **training.episodes.metrics(),
        **bonus_metrics,
        "train/reward": float(rewards.extrinsic.mean()),
        "bonus/mean": float(raw.mean()),
        "bonus/reward": float(rewards.intrinsic.mean()),
        "bonus/beta": beta,
        "bonus/share": rewards.share,
        "explore/coverage": training.coverage.share,
        **metrics,
        **clock.read(raw.numel()),
    }


def collect(training: Training) -> None:
    """Steps all environments through one rollout."""
    env, agent, rollout, clock = training.env, training.agent, training.rollout, training.clock
    simulation: Any = env.unwrapped
    rollout.clear()
    training.hands[0] = simulation.hand_positions()
    for t in range(rollout.steps):
        with clock("acting"):
            stored = agent.encoder.read(training.observation, watch=True)
            actions, log_probs, features = agent.act(stored)
            rollout.put_observation(t, stored, features)
            rollout.actions[t], rollout.log_probs[t] = actions, log_probs
        with clock("simulation"):
            training.observation, rewards, terminated, truncated, info = env.step(actions.numpy())
        with clock("acting"):
            rollout.rewards[t] = torch.from_numpy(rewards)
            rollout.terminated[t] = torch.from_numpy(terminated)
            rollout.truncated[t] = torch.from_numpy(truncated)
            ended = terminated | truncated
            if ended.any():
                finals = agent.encoder.read(stack_observations(info["final_obs"][ended]))
                rollout.put_finals(finals, agent.features(finals))
            training.episodes.step(rewards, ended, info)
            training.hands[t + 1] = simulation.hand_positions()
            training.coverage.visit(training.hands[t + 1])
    stored = agent.encoder.read(training.observation)
    rollout.put_observation(rollout.steps, stored, agent.features(stored))


def stack_observations(observations: NDArray[np.object_]) -> Any:
    """Single observations, arrays or dicts of arrays, as one batch."""
    if isinstance(observations[0], dict):
        return {part: np.stack([o[part] for o in observations]) for part in observations[0]}
    return np.stack(list(observations))


def build_windows(training: Training) -> WindowIndex:
    """Indexes the windows of the rollout.

    What they reach back to is encoded anew: statistics or encoder have moved on since.
    """
    rollout, depth = training.rollout, training.windows.reach
    after = training.settings.ends_at == "next"
    history = None
    if training.history and depth:
        flat = {part: values.flatten(0, 1) for part, values in training.history.items()}
        history = training.agent.features(flat).view(rollout.num_envs, depth, -1)
    training.history = rollout.newest(depth, training.history)
    return training.windows.build(
        rollout.features[:-1],
        rollout.ended,
        last=rollout.features[-1] if after else None,
        finals=rollout.final_features() if after else None,
        actions=rollout.actions,
        history=history,
    )


def score(training: Training, index: WindowIndex) -> tuple[Tensor, Metrics]:
    """The raw bonus ``(M, N)`` of every step, learning from the share that the settings say.

    Windows that are not learned from are scored first, by the bonus as the rollout found it.
    """
    bonus, settings = training.bonus, training.settings
    order = torch.randperm(len(index), generator=training.generator)
    if training.probe is None:
        training.probe = index[order[:PROBE_WINDOWS]]
    trained = max(1, round(settings.train_fraction * len(index)))
    raw = torch.empty(len(index))
    at_once = max(SCORED_AT_ONCE, SCORED_NUMBERS // training.probe.features[0].numel())
    for rows in pieces(order[trained:], at_once):
        raw[rows] = bonus.reward(index[rows])
    sums: dict[str, float] = {}
    minibatches = pieces(order[:trained], settings.bonus_minibatch)
    for rows in minibatches:
        raw[rows], metrics = bonus.learn(index[rows])
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + value / len(minibatches)
    for _ in range(settings.bonus_passes - 1):
        again = order[torch.randperm(trained, generator=training.generator)]
        for rows in pieces(again, settings.bonus_minibatch):
            bonus.learn(index[rows])
    sums["bonus/probe"] = float(bonus.reward(training.probe).mean())
    return raw.view(training.rollout.rewards.shape), sums


def map_novelty(training: Training, index: WindowIndex, raw: Tensor) -> None:
    """Puts the raw bonus ``(M, N)`` on the map at the places where the steps' windows end."""
    places, known = training.hands[:-1], torch.ones_like(raw, dtype=torch.bool)
    if training.settings.ends_at == "next":
        # The hand has been reset where an episode ended: where it was is not known.
        places, known = training.hands[1:], ~training.rollout.ended
    training.novelty.visit(places[known.numpy()], raw[known].numpy())
    training.newest = most_novel(index, raw)


def make_batch(agent: PPO, rollout: Rollout, rewards: Rewards, beta: float) -> Batch:
    """Values, advantages and returns of a rollout, flat and ready to learn from.

    With one head both rewards are one stream, whose episodes end. With two the bonus, without its
    weight beta, has its own, which runs on across episodes.
    """
    settings, ended = agent.settings, rollout.ended
    flat = {part: values.flatten(0, 1) for part, values in rollout.observations.items()}
    values = agent.values(flat).view(rollout.steps + 1, rollout.num_envs, agent.heads)
    now, after = values[:-1], values[1:].clone()
    over_episodes = after[..., -1].clone()
    # What an ended episode's last step led to is its final observation, not the next one's first.
    after[ended] = agent.values(rollout.finals())
    never = torch.zeros_like(ended)
    results = [
        gae(
            rewards.extrinsic if agent.heads == 2 else rewards.total,
            now[..., 0],
            after[..., 0],
            terminated=rollout.terminated,
            ended=ended,
            discount=settings.discount,
            gae_lambda=settings.gae_lambda,
        )
    ]
    if agent.heads == 2:
        results.append(
            gae(
                rewards.intrinsic / beta if beta else torch.zeros_like(rewards.intrinsic),
                now[..., 1],
                over_episodes,
                terminated=never,
                ended=never,
                discount=settings.intrinsic_discount,
                gae_lambda=settings.gae_lambda,
            )
        )
    advantages, returns = (torch.stack(streams, dim=-1) for streams in zip(*results, strict=True))
    return Batch(
        {part: values[:-1].flatten(0, 1) for part, values in rollout.observations.items()},
        rollout.actions.flatten(0, 1),
        rollout.log_probs.flatten(),
        advantages.flatten(0, 1),
        now.flatten(0, 1),
        returns.flatten(0, 1),
    )
