"""A replay ring of single observations, from which stacks, windows and n-step returns are rebuilt.

A slot is one observation together with what led to it: action, reward, and whether the episode
terminated there. The final observation of an episode has a slot like all others, so a step that a
time limit cut off bootstraps from what it really led to. A transition starts at every slot whose
successor is of the same episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from mimex.data.checks import require_positive
from mimex.data.replay_log import ReplayLog, allocate
from mimex.data.trail import replay_rows, sum_between
from mimex.data.transitions import Observations, Transitions, Windows
from mimex.data.windows import EndsAt

_TRIES = 1000  # draws before we believe that there is nothing to draw


class ReplayBuffer:
    """A ring of observations for each environment.

    Args:
        capacity: Observations that are kept, over all environments.
        shape: Of one observation: ``(C, H, W)`` for frames, ``(D,)`` for vectors.
        action_dim: Numbers an action.
        pixels: Whether observations are uint8 frames, otherwise float32 vectors.
        num_envs: Environments, each with a ring of its own.
        stack: Observations that the agent sees at once; at an episode's start the first one stands
            for those before it.
        n_step: Steps of reward before a transition bootstraps.
        discount: Gamma.
        window: Steps of the windows of the bonus; 0 for none.
        ends_at: Whether windows end at the "observation" or at the "next" one.
        stride: Steps between two of a window, whose actions are summed.
        run: Transitions that are drawn one after the other.
        folder: Where ``save`` writes; needed for that and for memory mapping.
        memory_mapped: Whether observations are kept in a file of the folder.
        device: Where samples are put; the rings themselves stay in memory.
    """

    def __init__(
        self,
        capacity: int,
        shape: tuple[int, ...],
        action_dim: int,
        *,
        pixels: bool,
        num_envs: int = 1,
        stack: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        window: int = 0,
        ends_at: EndsAt = "observation",
        stride: int = 1,
        run: int = 1,
        folder: Path | None = None,
        memory_mapped: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        require_positive(num_envs=num_envs, stack=stack, n_step=n_step, stride=stride, run=run)
        if window < 0:
            raise ValueError(f"window={window} must be at least 0.")
        if memory_mapped and folder is None:
            raise ValueError("memory_mapped=True needs folder: where the file shall be.")
        self.stack, self.n_step, self.discount, self.run = stack, n_step, discount, run
        self.window, self.stride, self.ends_at, self.num_envs = window, stride, ends_at, num_envs
        self.slots, self.device = capacity // num_envs, torch.device(device)
        needed = stack - 1 + max(window * stride - 1, 0) + n_step + 2
        if self.slots < needed:
            raise ValueError(
                f"replay.capacity={capacity} leaves {self.slots} slots for each of {num_envs} "
                f"environments; stacks of {stack}, windows of {window} and {n_step} steps need "
                f"at least {needed}."
            )
        total = self.slots * num_envs
        kind = torch.uint8 if pixels else torch.float32
        mapped = folder / "ring" if memory_mapped and folder is not None else None
        self.observations = allocate((total, *shape), kind, mapped)
        self.actions = torch.zeros(total, action_dim)
        self.rewards = torch.zeros(total)
        self.terminated = torch.zeros(total, dtype=torch.bool)
        self.ages = torch.zeros(total, dtype=torch.int64)  # observations of the episode before
        self.added = [0] * num_envs  # observations ever added to each ring
        self.log = None if folder is None else ReplayLog(folder, self._arrays, self.slots)

    def __len__(self) -> int:
        """How many observations there are."""
        return sum(min(added, self.slots) for added in self.added)

    @property
    def _arrays(self) -> dict[str, Tensor]:
        return {
            "observations": self.observations,
            "actions": self.actions,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "ages": self.ages,
        }

    def start(self, observation: np.ndarray[Any, Any], env: int = 0) -> None:
        """Takes in the first observation of an episode."""
        self._put(env, observation, np.float32(0), 0.0, False, 0)

    def add(
        self,
        observation: np.ndarray[Any, Any],
        action: np.ndarray[Any, Any],
        reward: float,
        terminated: bool,
        env: int = 0,
    ) -> None:
        """Takes in one step of an environment.

        Args:
            observation: What the step led to; the final one too where the episode ended.
            action: What was done.
            reward: What the environment paid for it.
            terminated: Whether the episode ended for good; False where a time limit cut it off.
            env: Which environment.
        """
        if not self.added[env]:
            raise ValueError(f"environment {env} has no episode yet: start(observation) first.")
        newest = self._row(env, self.added[env] - 1)
        self._put(env, observation, action, reward, terminated, int(self.ages[newest]) + 1)

    def _put(
        self, env: int, observation: Any, action: Any, reward: float, terminated: bool, age: int
    ) -> None:
        row = self._row(env, self.added[env])
        self.observations[row] = torch.as_tensor(observation)
        self.actions[row] = torch.as_tensor(action)
        self.rewards[row] = reward
        self.terminated[row] = terminated
        self.ages[row] = age
        self.added[env] += 1

    def _row(self, env: int, number: int) -> int:
        """The row of the observation that was added as this number."""
        return env * self.slots + number % self.slots

    def newest(self, env: int = 0) -> Tensor:
        """What the agent sees now, ``(1, stack * C, H, W)`` or ``(1, stack * D)``."""
        return self._stacks(self._rows(torch.tensor([env]), torch.tensor([self.added[env] - 1])))[:]

    def sample(self, batch: int, generator: Generator) -> Transitions:
        """Draws transitions, each of those in the buffer with the same probability.

        Which ones are drawn depends on nothing but the generator and what was added: not on the
        windows, so that all methods of a comparison see the same.
        """
        envs, numbers = self._draw(batch, generator)
        newest = torch.as_tensor(self.added)[envs] - 1
        now = self._rows(envs, numbers)
        age = self.ages[now]
        # How far the episode goes on from here, up to n steps.
        steps = torch.zeros_like(numbers)
        (rewards, weights), weight = torch.zeros(2, batch), 1.0
        for k in range(1, self.n_step + 1):
            after = self._rows(envs, numbers + k)
            goes_on = (numbers + k <= newest) & (self.ages[after] == age + k) & (steps == k - 1)
            steps += goes_on
            rewards += weight * self.rewards[after] * goes_on
            weights += weight * goes_on
            weight *= self.discount
        last = self._rows(envs, numbers + steps)
        discounts = self.discount**steps * ~self.terminated[last]
        windows = None
        if self.window:
            ends = numbers + int(self.ends_at == "next")
            windows = self._windows(now, envs, ends, torch.arange(batch) // self.run * self.run)
        return Transitions(
            self._stacks(now),
            self.actions[self._rows(envs, numbers + 1)].to(self.device),
            rewards.to(self.device),
            weights.to(self.device),
            discounts.float().to(self.device),
            self._stacks(last),
            windows,
            self.run,
        )

    def _oldest(self) -> Tensor:
        """Of each ring the first number ``(N,)`` whose stack is whole; those before serve it."""
        added = torch.as_tensor(self.added)
        return torch.where(added > self.slots, added - self.slots + self.stack - 1, 0)

    def _draw(self, batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Environments and numbers ``(B,)`` of observations at which transitions start."""
        oldest = self._oldest()
        # The newest has no successor yet.
        count = (torch.as_tensor(self.added) - 1 - oldest).clamp(min=0)
        ends = count.cumsum(0)
        total = int(ends[-1])
        if not total:
            raise ValueError("the replay buffer has no transition to sample: add steps first.")
        envs, numbers = torch.zeros(2, batch, dtype=torch.int64)
        first = torch.randint(total, (-(-batch // self.run), 1), generator=generator)
        drawn = ((first + torch.arange(self.run)) % total).flatten()[:batch]
        missing = torch.arange(batch)
        for _ in range(_TRIES):
            env = torch.searchsorted(ends, drawn, right=True)
            number = oldest[env] + drawn - (ends[env] - count[env])
            envs[missing], numbers[missing] = env, number
            # A final observation has the next episode's first after it: no transition.
            missing = missing[self.ages[self._rows(env, number + 1)] == 0]
            if not len(missing):
                return envs, numbers
            drawn = torch.randint(total, (len(missing),), generator=generator)
        raise ValueError(f"the replay buffer's {len(self)} observations have hardly a transition.")

    def _rows(self, envs: Tensor, numbers: Tensor) -> Tensor:
        return envs * self.slots + numbers % self.slots

    def _stacks(self, rows: Tensor) -> Observations:
        """The stacks that end at the observations in these rows ``(B,)``."""
        first = rows - rows % self.slots
        back, _ = replay_rows(rows, rows - self.ages[rows], self.slots, self.stack)
        return Observations(self.observations, first[:, None] + back.squeeze(-1), self.device)

    def windows_at(self, envs: Tensor, numbers: Tensor) -> Windows:
        """The windows that end at some observations, given by environment and number ``(B,)``.

        All their observations are among the others. What the ring has forgotten is not valid.
        """
        none = torch.zeros(0, dtype=torch.int64)
        return self._windows(none, envs, numbers, torch.zeros_like(envs))

    def _windows(self, given: Tensor, envs: Tensor, numbers: Tensor, runs: Tensor) -> Windows:
        """Windows by index, with every observation once in each run.

        Args:
            given: Rows ``(B,)`` of observations that the caller has, or none ``(0,)``.
            envs: ``(B,)`` of the observations at which the windows end.
            numbers: ``(B,)``, the same.
            runs: ``(B,)``: the first transition of the run that each belongs to.
        """
        start = numbers - self.ages[self._rows(envs, numbers)]
        oldest = torch.maximum(start, self._oldest()[envs])
        path, known = replay_rows(numbers, oldest, self.slots, self.window, self.stride)
        path += (envs * self.slots)[:, None, None]  # (B, L, S)
        total = len(self.ages)
        owned = given + total * runs[: len(given)]
        looked_at = path[..., -1] + total * runs[:, None]  # padding repeats the first
        keys, found = torch.unique(torch.cat([owned, looked_at.flatten()]), return_inverse=True)
        places = torch.full_like(keys, -1)
        places[found[: len(given)]] = torch.arange(len(given))
        others = places < 0
        places[others] = len(given) + torch.arange(int(others.sum()))
        return Windows(
            self._stacks(keys[others] % total),
            (keys[others] // total).to(self.device),
            places[found[len(given) :]].view(looked_at.shape).to(self.device),
            known[..., -1].to(self.device),
            sum_between(self.actions[path], known).to(self.device),
        )

    def save(self) -> None:
        """Writes what was added since the last time to the folder."""
        if self.log is None:
            raise ValueError("this replay buffer was made without folder: it cannot be saved.")
        self.log.append(self.added)

    def state_dict(self) -> dict[str, Any]:
        """How much there is; the observations themselves are in the folder after ``save``."""
        return {"added": list(self.added), "slots": self.slots}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave, with what ``save`` wrote before it."""
        slots = int(state["slots"])
        unturned = max(state["added"]) <= min(slots, self.slots)  # fits into any such ring
        if len(state["added"]) != self.num_envs or not (slots == self.slots or unturned):
            raise ValueError(
                f"the saved replay buffer has {len(state['added'])} rings of {state['slots']} "
                f"slots, this one {self.num_envs} of {self.slots}: use the same replay.capacity."
            )
        if self.log is None:
            raise ValueError("this replay buffer was made without folder: it cannot be loaded.")
        added = [int(count) for count in state["added"]]
        self.log.read(added)
        self.added = added
