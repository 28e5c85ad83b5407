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
"""Number of updates that each metric is averaged over. Episode lengths and returns are already
averages over many episodes."""

MIN_KL = 1e-4
"""KL divergence per update below which the policy does not change; 0.01 is healthy."""

MIN_LR = 0.05
"""Fraction of the highest learning rate below which a constant policy is expected."""

SHORT, NARROW = 0.4, 0.15
"""Fractions of the longest episodes, and of the highest std, below which there is a warning."""

MIN_EXPLAINED = 0.05
"""Explained variance below which the critic is useless."""

LEARNED = 0.1
"""Success rate above which shorter episodes and a small std are expected."""

SOLVED = 0.9
"""Success rate above which a constant policy and constant returns are expected."""


class Health:
    """Checks the metrics of each update, and gives each warning once per run."""

    def __init__(self) -> None:
        self._recent = {name: deque[float](maxlen=updates) for name, updates in WATCHED.items()}
        self._highest: dict[str, float] = {}  # averages so far
        self._lowest: dict[str, float] = {}
        self._given: set[str] = set()

    def check(self, metrics: Mapping[str, float]) -> list[str]:
        """Returns new warnings, with a remedy each."""
        for name, values in self._recent.items():
            if name in metrics:
                values.append(metrics[name])
        now = {name: fmean(v) for name, v in self._recent.items() if len(v) == v.maxlen}
        for name, value in now.items():
            self._highest[name] = max(value, self._highest.get(name, value))
            self._lowest[name] = min(value, self._lowest.get(name, value))
        new = {kind: text for kind, text in self._warnings(now) if kind not in self._given}
        self._given |= new.keys()
        return list(new.values())

    def _warnings(self, now: Metrics) -> Iterator[tuple[str, str]]:
        """Yields the kind and text of all warnings that apply to the current averages."""
        success = self._success(now)
        lr, kl = now.get("ppo/lr", 0.0), now.get("ppo/approx_kl")
        constant = kl is not None and kl < MIN_KL and lr > MIN_LR * self._highest["ppo/lr"]
        if constant and success < SOLVED:
            yield (
                "constant",
                f"the policy has stopped changing: the KL divergence per update is {kl:.1g}, but "
                "0.01 is healthy. Adapt the learning rate to it (--ppo.lr-schedule adaptive), clip "
                "the critic's gradient separately and normalize values (--ppo.clip-per-network "
                "--ppo.normalize-values).",
            )
        steps = now.get("train/episode_steps")
        # On a task that does not report success, shorter episodes may be the goal.
        if steps is not None and self._reports_success and success < LEARNED:
            longest = self._highest["train/episode_steps"]
            if steps < SHORT * longest:
                yield (
                    "short",
                    f"episodes have become shorter, from {longest:.0f} steps to {steps:.0f}, "
                    "without success: the agent may end them to avoid costs. Cover the costs with "
                    "a bonus (--bonus with --scale.survival-bonus 1; compare with --bonus "
                    "constant), or use a reward on the way to the goal (on PixMC-Sparse --reward "
                    "dense).",
                )
        std = now.get("ppo/std")
        if std is not None and std < NARROW * self._highest["ppo/std"] and success < LEARNED:
            yield (
                "narrow",
                f"the policy's std has collapsed, from {self._highest['ppo/std']:.2g} to "
                f"{std:.2g}, without success: it no longer explores. Use --ppo.min-std or "
                "--ppo.entropy-coef, or an exploration bonus (--bonus).",
            )
        explained = now.get("ppo/explained_variance")
        if explained is not None and explained < MIN_EXPLAINED and success < SOLVED:
            yield (
                "unexplained",
                f"the critic explains nothing: {explained:.0%} of the returns' variance, so that "
                "advantages are noise. Rewards may be too rare or too large "
                "(--ppo.normalize-values), or observations may lack what the reward depends on.",
            )

    @property
    def _reports_success(self) -> bool:
        return bool(self._recent["train/success"])

    def _success(self, now: Metrics) -> float:
        """The success rate. If it is not reported, 1 while the return is in its upper tenth."""
        if self._reports_success or "train/return" not in now:
            return now.get("train/success", 0.0)
        low, high = self._lowest["train/return"], self._highest["train/return"]
        return float(high > low and now["train/return"] >= low + 0.9 * (high - low))


def health_after(metrics: Path) -> Health:
    """Returns the state after the rows of metrics.jsonl, so that no warning is repeated."""
    health = Health()
    if metrics.exists():
        with metrics.open() as rows:
            for row in rows:
                health.check(json.loads(row))
    return health


def all_warnings(rows: Iterable[Mapping[str, float]]) -> list[tuple[int, str]]:
    """Returns the steps and texts of all warnings of a run, from its rows of metrics."""
    health = Health()
    return [(int(row["step"]), text) for row in rows for text in health.check(row)]
