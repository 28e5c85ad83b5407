"""Checks of what reaches the update: is it the bonus, and of the right transition?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mimex.bonus.scale import BonusScale
from mimex.data.windows import EndsAt
from mimex.doctor.check import Check, judge
from mimex.doctor.evidence import Array, Evidence
from mimex.doctor.probe import EPISODE_LENGTHS, FIELDS, canonical, signature
from mimex.doctor.windows import is_probe

REACHES = "the bonus reaches the update"
RIGHT_STEP = "each transition is paid its own bonus"
FINITE = "what the update trains on is finite"
WEIGHT = "the bonus has the weight that its scale says"
SHARE = "extrinsic and intrinsic rewards are of comparable size"

CLEAR = 3.0
"""How often the change must exceed the difference between two runs without bonus."""

ALIKE = 0.5
"""Least correlation of rewards with the bonus that was paid; unlike steps have about 0.1."""

SHIFTS = {-1: "an earlier step", 0: "its observation", 1: "its next one", 2: "a later step"}
"""Steps from a transition's observation to that whose bonus it may have been paid."""

AS_SAID = 1.5
"""How far the effective weight may be from what the scale says, as a factor."""

DROWNED = 0.99
"""Share of the absolute reward above which the bonus (or the task) is all the agent sees."""


def check_reaches(paying: Evidence, silent: Evidence, again: Evidence) -> Check:
    """Compares the targets under a bonus with those of two runs without."""
    shift = _distance(paying.targets, silent.targets)
    noise = _distance(silent.targets, again.targets)
    return judge(
        REACHES,
        shift > CLEAR * noise + 1e-9,
        f"targets move by {shift:.3g} with the bonus, by {noise:.3g} without",
        "add the bonus to the rewards BEFORE returns and advantages are computed; in "
        "Stable-Baselines3 a rollout callback is too late: use BonusVecEnv",
    )


def check_rewards(paying: Evidence, action_dim: int, ends_at: EndsAt | None) -> list[Check]:
    """Compares the rewards of single transitions with the bonus of their steps.

    The probe has no reward of its own, so that rewards are bonus alone.

    Args:
        paying: The run with the probe and its signature as bonus.
        action_dim: Numbers of the probe's flattened action.
        ends_at: Where the windows were seen to end, if that was found.
    """
    if paying.rewards is None or paying.observations is None:
        finding = "the set-up did not return rewards with observations"
        remedy = "return {'targets': ..., 'rewards': ..., 'observations': ...}"
        return [Check(name, "skip", finding, remedy) for name in (RIGHT_STEP, WEIGHT)]
    found = _steps(paying, action_dim)
    if found is None:
        finding = "observations are altered on their way to the algorithm"
        return [Check(name, "skip", finding) for name in (RIGHT_STEP, WEIGHT)]
    env, episode, step, clear = found
    rewards = paying.rewards[clear.numpy()]
    bonuses = {k: signature(episode, step + k, env)[clear].numpy() for k in SHIFTS}
    right = {"observation": (0,), "next": (1,), None: (0, 1)}[ends_at]
    return [
        _right_step({k: _correlation(rewards, bonuses[k]) for k in SHIFTS}, right),
        _weight(rewards, bonuses[right[-1]], paying.scale),
    ]


def _right_step(likeness: dict[int, float], right: tuple[int, ...]) -> Check:
    """Finds the step whose bonus a transition's reward is most like."""
    best = max(likeness, key=lambda k: likeness[k])
    finding = (
        f"rewards are most like the bonus of {SHIFTS[best]} (correlation {likeness[best]:.2f})"
    )
    if likeness[best] < ALIKE:
        finding = f"rewards are like the bonus of no step (best correlation {likeness[best]:.2f})"
    elif best not in right:
        finding += ", which is not where its window ends"
    return judge(
        RIGHT_STEP,
        likeness[best] >= ALIKE and best in right,
        finding,
        "pay each transition the bonus of its own window, in the same order: that which ends at "
        "the observation it led to, or (ends_at='observation') at the one it came from",
    )


def _weight(rewards: Array, raw: Array, scale: BonusScale | None) -> Check:
    """Compares the slope of rewards over the bonus with what the scale should make of it."""
    slope = float((raw * rewards).sum() / (raw * raw).sum())
    finding = f"a bonus of 1 adds {slope:.3g} to the reward: the effective beta"
    if scale is None:
        remedy = "return {..., 'scale': scale} to have it compared with your beta"
        return Check(WEIGHT, "skip", finding, remedy)
    rms = float(np.sqrt(np.square(raw).mean())) or 1.0
    unit = (1 - scale.discount**2) ** 0.5 / rms if scale.normalize else 1.0
    said = scale.beta * unit
    return judge(
        WEIGHT,
        bool(said and 1 / AS_SAID <= slope / said <= AS_SAID),
        f"{finding}; the scale (beta {scale.beta:g}) says {said:.3g}",
        "is beta applied twice, or the bonus added twice? BonusScale.combine has multiplied by "
        "beta already; .total is what trains the agent",
    )


def _steps(paying: Evidence, action_dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Environment, episode and step of each transition, and which rewards are the bonus alone."""
    observations = torch.as_tensor(paying.observations)
    observations = canonical(observations.reshape(len(observations), -1), action_dim)
    if not is_probe(observations, action_dim):
        return None
    env, episode, step = observations[:, :FIELDS].long().unbind(1)
    ends = step + 1 == torch.tensor(EPISODE_LENGTHS)[episode % len(EPISODE_LENGTHS)]
    clear = ~(ends & (episode % 2 == 1)) if paying.bootstrapped else torch.ones_like(ends)
    return env, episode, step, clear


def check_finite(own: Evidence) -> Check:
    """Looks for NaN and infinity in the targets of the user's own environment and bonus."""
    bad = int((~np.isfinite(own.targets)).sum())
    return judge(
        FINITE,
        not bad,
        f"{bad} of {own.targets.size} targets are NaN or infinite",
        "look at the observations first (normalize=True in the bonus clips them), then at beta",
    )


def check_share(own: Evidence) -> Check:
    """Weighs both rewards of the user's own environment and bonus."""
    if own.paid is None:
        return Check(SHARE, "skip", "the set-up did not return what was paid apart")
    extrinsic, intrinsic = own.paid["extrinsic"], own.paid["intrinsic"]
    if intrinsic == 0:
        return Check(SHARE, "fail", "the bonus paid nothing", "is beta 0, or the bonus NoBonus?")
    share = intrinsic / (extrinsic + intrinsic)
    finding = f"{share:.1%} of the absolute reward is bonus"
    if extrinsic == 0:
        finding = "the bonus paid, and there was no extrinsic reward (yet): a sparse task"
        return Check(SHARE, "pass", finding)
    if share > DROWNED:
        return Check(SHARE, "warn", finding, "the task drowns: lower beta, or give it a schedule")
    if share < 1 - DROWNED:
        remedy = "the bonus drowns: raise beta, or normalise it by a BonusScale"
        return Check(SHARE, "warn", finding, remedy)
    return Check(SHARE, "pass", finding)


def _distance(left: Array, right: Array) -> float:
    """The mean absolute difference; of the means where the runs were of different length."""
    if left.shape == right.shape:
        return float(np.abs(left - right).mean())
    return float(abs(left.mean() - right.mean()))


def _correlation(left: Array, right: Array) -> float:
    if left.std() == 0 or right.std() == 0:
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])
