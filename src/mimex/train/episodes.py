"""Metrics of training episodes."""

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

NORMAL, RESTARTED = "train/", "restart/"
"""Prefixes of the metrics of episodes with normal starts, and of restarted ones."""


class Episodes(Callback):
    """Averages return, length, success and other events over the last episodes of all processes.

    Restarted episodes (``train/restarts.py``) are averaged separately, as ``restart/success`` and
    so on. Sums stay on the environments' device until an episode ends.

    Args:
        num_envs: Number of parallel environments in this process.
        remember: Number of last episodes that metrics are averaged over.
        frames_per_step: Frames per environment step.
    """

    def __init__(self, num_envs: int, remember: int, frames_per_step: int = 1) -> None:
        self._frames = frames_per_step
        # Running episodes, (num_envs,) each.
        self._returns = torch.zeros(num_envs, dtype=torch.double)  # extrinsic
        self._steps = torch.zeros(num_envs, dtype=torch.long)
        self._met: dict[str, Tensor] = {}  # bool by event: has happened in the episode
        self._last: dict[str, deque[Metrics]] = {
            prefix: deque(maxlen=remember) for prefix in (NORMAL, RESTARTED)
        }
        # Episodes that ended in this process since the last row: step, prefix and outcome.
        self._new: list[tuple[int, str, Metrics]] = []
        self.total = 0
        self._seen = 0  # steps of all environments of all processes
        self._firsts: dict[str, int] = {}  # step of the first reward and of each first event

    @property
    def rewarded(self) -> bool:
        """Whether there was a positive reward so far; synchronized between processes per row."""
        return "reward" in self._firsts

    def begin(self, observation: Any) -> None:
        self.interrupt(observation)
        self.total = 0
        for last in self._last.values():
            last.clear()
        self._new.clear()

    def interrupt(self, observation: Any) -> None:
        self._returns.zero_()
        self._steps.zero_()
        self._met.clear()

    def step(self, step: Step) -> None:
        rewards, ended, info = _tensor(step.rewards), torch.as_tensor(step.ended), step.info
        any_ended = bool(ended.any())
        self._returns = self._returns.to(rewards.device) + rewards
        self._steps = self._steps.to(rewards.device) + 1
        self._seen += len(rewards) * processes.size()
        self._record_first("reward", rewards > 0)
        for name in info:
            event = _event(name)
            if event is None:
                continue
            values = _tensor(info[name])
            if any_ended:
                final = info["final_info"].get(name, np.zeros(len(ended)))
                values = torch.where(ended, _tensor(final), values)
            now = values > 0
            self._record_first(event, now)
            before = self._met.get(event, torch.zeros_like(ended))
            self._met[event] = before.to(ended.device) | now
        if any_ended:
            self._end(ended, final_successes(info), step.restarted)
        if processes.size() == 1:
            self._synchronize()

    def _record_first(self, event: str, now: Tensor) -> None:
        if event not in self._firsts and now.any():
            self._firsts[event] = self._seen

    def _end(self, ended: Tensor, successes: Any, restarted: Any) -> None:
        outcome = {"return": self._returns, "episode_steps": self._steps}
        if successes is not None:
            outcome["success"] = _tensor(successes)
        outcome |= {f"reached_{name}": met for name, met in self._met.items()}
        columns = torch.stack([values.double() for values in outcome.values()], dim=1)
        kinds = np.zeros(len(ended), bool) if restarted is None else np.asarray(restarted)
        for kind, row in zip(kinds[ended.cpu().numpy()], columns[ended].tolist(), strict=True):
            prefix = RESTARTED if kind else NORMAL
            self._new.append((self._seen, prefix, dict(zip(outcome, row, strict=True))))
        for running in (self._returns, self._steps, *self._met.values()):
            running.masked_fill_(ended, 0)

    def metrics(self, agent: Agent | None = None) -> Metrics:
        """Means over the last episodes, and the steps of first events."""
        if processes.size() > 1:
            self._synchronize()
        found: Metrics = {}
        for prefix, last in self._last.items():
            if last:
                found |= {
                    f"{prefix}{name}": float(np.mean(_column(last, name))) for name in last[-1]
                }
        if found:
            found["train/episodes"] = float(self.total)
        firsts = {name: float(step * self._frames) for name, step in self._firsts.items()}
        return found | {f"explore/first_{name}": step for name, step in firsts.items()}

    def _synchronize(self) -> None:
        """Collects the new episodes of all processes, in the order of their ends."""
        gathered = processes.all_gather_object((self._firsts, self._new))
        names = dict.fromkeys(name for firsts, _ in gathered for name in firsts)
        self._firsts = {
            name: min(firsts[name] for firsts, _ in gathered if name in firsts) for name in names
        }
        ended = sorted((one for _, new in gathered for one in new), key=lambda one: one[0])
        for _, prefix, outcome in ended:
            # An event that this episode does not report, but the last one did, counts as 0.
            last = self._last[prefix]
            last.append(dict.fromkeys(last[-1] if last else {}, 0.0) | outcome)
        self.total += len(ended)
        self._new.clear()

    def state_dict(self) -> dict[str, Any]:
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
        self._returns.copy_(torch.as_tensor(state["returns"]))
        self._steps.copy_(torch.as_tensor(state["steps"]))
        self._met = {name: torch.as_tensor(met).clone() for name, met in state["met"].items()}
        for prefix, last in self._last.items():
            last.clear()
            columns = {
                n: np.asarray(values).tolist() for n, values in state["last"][prefix].items()
            }
            for row in zip(*columns.values(), strict=True):
                last.append(dict(zip(columns, row, strict=True)))
        self.total, self._seen = int(state["total"]), int(state["seen"])
        self._firsts = dict(state["firsts"])


def _event(name: str) -> str | None:
    """The event that an info entry reports: "lift" for "reward/lift_bonus"; None for others."""
    if name == "object_touched":
        return "touch"
    if name.startswith("reward/") and name.endswith("_bonus"):
        return name.removeprefix("reward/").removesuffix("_bonus")
    return None


def _tensor(values: Any) -> Tensor:
    """Converts NumPy arrays, also of objects, to double precision; tensors are returned as is."""
    return values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values, float))


def _column(outcomes: Iterable[Metrics], name: str) -> list[float]:
    """One value of some episodes; 0 for those that did not report it."""
    return [outcome.get(name, 0.0) for outcome in outcomes]
