"""How the newest training episodes went."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mimex.contracts import Agent, Callback, Step, final_successes
from mimex.nn import processes
from mimex.types import Metrics

_TERM, _CONDITION = "reward/", "_bonus"
"""An info entry "reward/lift_bonus" is above 0 where the condition "lift" is met."""

NORMAL, RESTARTED = "train/", "restart/"
"""Prefixes of the metrics of episodes with normal starts, and of restarted ones."""

_TOUCHED = "object_touched"
"""The info entry of the condition "touch"."""


class Episodes(Callback):
    """Follows the running episodes and remembers how the last ones ended, in all processes.

    Episodes that began at an archived state (``train/restarts.py``) are counted separately, as
    ``restart/success`` and so on: ``train/`` metrics are of normal starts.

    Sums stay where the environments have their rewards; of an episode that ended they are read.

    Args:
        num_envs: Number of parallel environments in this process.
        remember: How many ended episodes the metrics are about.
        frames_per_step: Frames that a step counts as.
    """

    def __init__(self, num_envs: int, remember: int, frames_per_step: int = 1) -> None:
        self._frames = frames_per_step
        # Of the running episodes, (num_envs,) each.
        self._returns = torch.zeros(num_envs, dtype=torch.double)  # extrinsic
        self._steps = torch.zeros(num_envs, dtype=torch.long)
        self._met: dict[str, Tensor] = {}  # bool by condition: met so far
        self._last: dict[str, deque[Metrics]] = {
            prefix: deque(maxlen=remember) for prefix in (NORMAL, RESTARTED)
        }
        # Ended here since the last row: when, which of the two kinds, and how.
        self._new: list[tuple[int, str, Metrics]] = []
        self.total = 0
        self._seen = 0  # steps of all environments, from the very first on
        self._firsts: dict[str, int] = {}  # the step of the first reward, and of each condition

    @property
    def rewarded(self) -> bool:
        """Whether any step so far received a positive reward; in all processes after a row."""
        return "reward" in self._firsts

    def begin(self, observation: Any) -> None:
        """Forgets running and ended episodes: all environments were reset."""
        self.interrupt(observation)
        self.total = 0
        for last in self._last.values():
            last.clear()
        self._new.clear()

    def interrupt(self, observation: Any) -> None:
        """Forgets the running episodes: all environments were reset in the middle of them."""
        self._returns.zero_()
        self._steps.zero_()
        self._met.clear()

    def step(self, step: Step) -> None:
        """Takes in one step of every environment."""
        rewards, ended, info = _numbers(step.rewards), torch.as_tensor(step.ended), step.info
        any_ended = bool(ended.any())
        self._returns = self._returns.to(rewards.device) + rewards
        self._steps = self._steps.to(rewards.device) + 1
        self._seen += len(rewards) * processes.size()
        self._note("reward", rewards > 0)
        for name in info:
            condition = _condition(name)
            if condition is not None:
                values = _numbers(info[name])
                if any_ended:
                    final = info["final_info"].get(name, np.zeros(len(ended)))
                    values = torch.where(ended, _numbers(final), values)
                now = values > 0
                self._note(condition, now)
                before = self._met.get(condition, torch.zeros_like(ended))
                self._met[condition] = before.to(ended.device) | now
        if any_ended:
            self._end(ended, final_successes(info), step.restarted)
        if processes.size() == 1:
            self._meet()

    def _note(self, what: str, now: Tensor) -> None:
        """Remembers the step at which something was so for the first time, in any environment."""
        if what not in self._firsts and now.any():
            self._firsts[what] = self._seen

    def _end(self, ended: Tensor, successes: Any, restarted: Any) -> None:
        outcome = {"return": self._returns, "episode_steps": self._steps}
        if successes is not None:
            outcome["success"] = _numbers(successes)
        outcome |= {f"reached_{name}": met for name, met in self._met.items()}
        columns = torch.stack([values.double() for values in outcome.values()], dim=1)
        kinds = np.zeros(len(ended), bool) if restarted is None else np.asarray(restarted)
        for kind, row in zip(kinds[ended.cpu().numpy()], columns[ended].tolist(), strict=True):
            prefix = RESTARTED if kind else NORMAL
            self._new.append((self._seen, prefix, dict(zip(outcome, row, strict=True))))
        for running in (self._returns, self._steps, *self._met.values()):
            running.masked_fill_(ended, 0)

    def metrics(self, agent: Agent | None = None) -> Metrics:
        """Means over the last episodes, and the steps of the first reward and condition met."""
        found: Metrics = {}
        if processes.size() > 1:
            self._meet()
        for prefix, last in self._last.items():
            if last:
                found |= {
                    f"{prefix}{name}": float(np.mean(_column(last, name))) for name in last[-1]
                }
        if found:
            found["train/episodes"] = float(self.total)
        firsts = {name: float(step * self._frames) for name, step in self._firsts.items()}
        return found | {f"explore/first_{name}": step for name, step in firsts.items()}

    def _meet(self) -> None:
        """Takes in how episodes ended in all processes, in the order of their ends."""
        gathered = processes.all_gather_object((self._firsts, self._new))
        names = dict.fromkeys(name for firsts, _ in gathered for name in firsts)
        self._firsts = {
            name: min(firsts[name] for firsts, _ in gathered if name in firsts) for name in names
        }
        ended = sorted((one for _, new in gathered for one in new), key=lambda one: one[0])
        for _, prefix, outcome in ended:
            # What an earlier episode reported, success for one, and this one does not, is 0.
            last = self._last[prefix]
            last.append(dict.fromkeys(last[-1] if last else {}, 0.0) | outcome)
        self.total += len(ended)
        self._new.clear()

    def state_dict(self) -> dict[str, Any]:
        """All that the metrics depend on."""
        return {
            "returns": self._returns.clone(),
            "steps": self._steps.clone(),
            "met": {name: met.clone() for name, met in self._met.items()},
            "last": {
                prefix: {name: np.array(_column(last, name)) for name in (last[-1] if last else ())}
                for prefix, last in self._last.items()
            },
            "total": self.total,
            "seen": self._seen,
            "firsts": dict(self._firsts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self._returns.copy_(torch.as_tensor(state["returns"]))
        self._steps.copy_(torch.as_tensor(state["steps"]))
        self._met = {name: torch.as_tensor(met).clone() for name, met in state["met"].items()}
        for prefix, last in self._last.items():
            last.clear()
            columns = {
                n: np.asarray(column).tolist() for n, column in state["last"][prefix].items()
            }
            for row in zip(*columns.values(), strict=True):
                last.append(dict(zip(columns, row, strict=True)))
        self.total, self._seen = int(state["total"]), int(state["seen"])
        self._firsts = dict(state["firsts"])


def _condition(name: str) -> str | None:
    """The condition that an info entry reports; None if it reports none."""
    if name == _TOUCHED:
        return "touch"
    if name.startswith(_TERM) and name.endswith(_CONDITION):
        return name.removeprefix(_TERM).removesuffix(_CONDITION)
    return None


def _numbers(values: Any) -> Tensor:
    """A tensor as it is, and an array of NumPy, also of objects, as one of double precision."""
    return values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values, float))


def _column(outcomes: Iterable[Metrics], name: str) -> list[float]:
    """One outcome of some episodes; 0 for those that did not report it."""
    return [outcome.get(name, 0.0) for outcome in outcomes]
