"""Warnings about common failures of training, from its metrics."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean

from mimex.types import Metrics

RECENT = 20
WATCHED = dict.fromkeys(
    ("ppo/approx_kl", "ppo/lr", "ppo/std", "ppo/explained_variance", "train/success"), RECENT
) | {"train/episode_steps": 5, "train/return": 5}
"""Updates over which each number is averaged before anything is said of it. The steps of episodes
and their returns are averages over hundreds of these already, and an agent that ends them does so
early: on sparse FrankaReach within 20 updates."""

STILL_KL = 1e-4
"""An update that moves the policy less than this does not move it: a healthy one is at 0.01."""

SMALL_RATE = 0.05
"""Share of the highest learning rate below which a policy that stands still is meant to."""

SHORT, NARROW = 0.4, 0.15
"""Shares of the longest episodes, and of the first std, below which something has gone wrong."""

UNEXPLAINED = 0.05
"""Share of the returns' variance below which a critic explains nothing."""

LEARNED = 0.1
"""Success above which shorter episodes or a small std are what was asked for."""


SOLVED = 0.9
"""Success above which a policy that stands still, and returns that are all alike, are no fault.
Where a task does not report success, its return does: see ``Health._success``."""


class Health:
    """Checks the metrics of each update, and warns of each problem once per run."""

    def __init__(self) -> None:
        self._recent = {name: deque[float](maxlen=updates) for name, updates in WATCHED.items()}
        self._highest: dict[str, float] = {}  # of the averages so far
        self._lowest: dict[str, float] = {}
        self._told: list[str] = []

    def look(self, metrics: Mapping[str, float]) -> list[str]:
        """Takes in an update's metrics; returns what has to be said now, with the remedy."""
        for name, values in self._recent.items():
            if name in metrics:
                values.append(metrics[name])
        now = {name: fmean(v) for name, v in self._recent.items() if len(v) == v.maxlen}
        for name, value in now.items():
            self._highest[name] = max(value, self._highest.get(name, value))
            self._lowest[name] = min(value, self._lowest.get(name, value))
        found = [(kind, words) for kind, words in self._alarms(now) if kind not in self._told]
        self._told += [kind for kind, _ in found]
        return [words for _, words in found]

    def _alarms(self, now: Metrics) -> Iterator[tuple[str, str]]:
        """Kind and words of all that is wrong, by averages and the highest averages so far."""
        success = self._success(now)
        rate, kl = now.get("ppo/lr", 0.0), now.get("ppo/approx_kl")
        still = kl is not None and kl < STILL_KL and rate > SMALL_RATE * self._highest["ppo/lr"]
        if still and success < SOLVED:
            yield (
                "still",
                f"the policy has stopped moving: an update's KL divergence is {kl:.1g}, where 0.01 "
                "is healthy. Let the learning rate follow it (--ppo.lr-schedule adaptive), and let "
                "neither the critic nor the size of rewards stand in the way "
                "(--ppo.clip-per-network --ppo.normalize-values).",
            )
        steps = now.get("train/episode_steps")
        # Without a report of success, shorter episodes may be just what the task asks for.
        if steps is not None and self._reports_success and success < LEARNED:
            longest = self._highest["train/episode_steps"]
            if steps < SHORT * longest:
                yield (
                    "short",
                    f"episodes have become shorter, from {longest:.0f} steps to {steps:.0f}, "
                    "without success: the agent ends them, as it does where each step costs more "
                    "than it earns. A bonus keeps it going if the costs are covered (--bonus with "
                    "--scale.survival-bonus 1; --bonus constant tells survival from exploration), "
                    "or a reward on the way to the goal (on PixMC-Sparse --reward dense).",
                )
        std = now.get("ppo/std")
        if std is not None and std < NARROW * self._highest["ppo/std"] and success < LEARNED:
            yield (
                "narrow",
                f"the policy's std has collapsed, from {self._highest['ppo/std']:.2g} to "
                f"{std:.2g}, before it succeeded: it tries nothing new any more. Keep it up with "
                "--ppo.min-std or --ppo.entropy-coef, or reward novelty with --bonus.",
            )
        explained = now.get("ppo/explained_variance")
        if explained is not None and explained < UNEXPLAINED and success < SOLVED:
            yield (
                "unexplained",
                f"the critic explains nothing: {explained:.0%} of the returns' variance, so that "
                "advantages are noise. Look for rewards that are too rare or too large "
                "(--ppo.normalize-values), or observations that lack what the reward depends on.",
            )

    @property
    def _reports_success(self) -> bool:
        return bool(self._recent["train/success"])

    def _success(self, now: Metrics) -> float:
        """The success rate; of a task that does not report it, 1 while its return is high.

        High is in the upper tenth of what it has been so far, if it has changed at all.
        """
        if self._reports_success or "train/return" not in now:
            return now.get("train/success", 0.0)
        low, high = self._lowest["train/return"], self._highest["train/return"]
        return float(high > low and now["train/return"] >= low + 0.9 * (high - low))


def health_after(metrics: Path) -> Health:
    """Health as it was after the rows of a run's metrics.jsonl, so that nothing is said twice."""
    health = Health()
    if metrics.exists():
        with metrics.open() as rows:
            for row in rows:
                health.look(json.loads(row))
    return health


def diagnosis(rows: Iterable[Mapping[str, float]]) -> list[tuple[int, str]]:
    """What was said during a run, from its rows of metrics: steps and words."""
    health = Health()
    return [(int(row["step"]), words) for row in rows for words in health.look(row)]
