"""A replay buffer of single observations, from which stacks, windows and returns are built.

A slot holds one observation with the action and the reward before it, and whether the episode
terminated there. The final observation of an episode has a slot of its own, so that a truncated
episode bootstraps from it. A transition starts at every slot whose successor is of the same
episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from mimex.data.checks import require_positive
from mimex.data.replay_log import ReplayLog, allocate
from mimex.data.windows import EndsAt, ring_indices, sum_actions

Index = TypeVar("Index", int, Tensor)

MAX_DRAWS = 1000
"""Draws of a batch before a buffer counts as having no transition."""


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the replay buffer."""

    capacity: int = 1_000_000
    """Observations in the buffer, over all environments (as published)."""
    memory_mapped: bool = False
    """Keep observations in a file of the run folder instead of memory: slower on a cold cache. Disk
    space is reserved at the start and freed at the end."""
    run: int = 1
    """Consecutive transitions per draw, with any bonus and without (published: 1). Overlapping
    windows are encoded once: from pixels, 4 makes a bonus on windows of 5 four times cheaper, but
    batches are less diverse. Use one value for all methods of a comparison."""
    save: bool = True
    """Save the buffer with checkpoints; otherwise a resumed run starts with an empty one."""

    def __post_init__(self) -> None:
        require_positive(**{"replay.capacity": self.capacity, "replay.run": self.run})


@dataclass(frozen=True, eq=False)
class Observations:
    """Stacked observations as rows of a ring of single ones; indexing gathers them.

    Attributes:
        ring: ``(R, ...)`` single observations: frames ``(R, C, H, W)`` or vectors ``(R, D)``.
        rows: ``(B, K)`` rows of each stack, oldest first.
        device: PyTorch device of the gathered observations.
    """

    ring: Tensor
    rows: Tensor
    device: torch.device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """Some stacks, ``(b, K * C, H, W)`` or ``(b, K * D)``."""
        rows = self.rows[index]
        count, stack = rows.shape
        gathered = self.ring.index_select(0, rows.flatten())
        stacks = gathered.view(count, stack * self.ring.shape[1], *self.ring.shape[2:])
        return stacks.to(self.device)


class Windows(NamedTuple):
    """The windows of sampled transitions: B windows of L observations, oldest first.

    Every observation is encoded once: those of the transitions are not repeated in ``others``.
    """

    others: Observations  # (U): observations that no transition starts from
    owners: Tensor  # (U,) first transition of the run of transitions that each belongs to
    positions: Tensor  # (B, L) among the observations of the transitions, followed by the others
    valid: Tensor  # (B, L) bool
    actions: Tensor  # (B, L, A): the previous action of each observation


class Transitions(NamedTuple):
    """A batch of n-step transitions."""

    observations: Observations  # (B)
    actions: Tensor  # (B, A)
    rewards: Tensor  # (B,) discounted sums over up to n steps
    weights: Tensor  # (B,) the same sums for a reward of 1 per step
    discounts: Tensor  # (B,) of the bootstrapped value; 0 if the episode terminated
    next_observations: Observations  # (B)
    windows: Windows | None
    run: int  # consecutive transitions per draw

    def arrays(self) -> dict[str, Tensor]:
        """The arrays by name, with observations gathered, for debugging."""
        return {
            "observations": self.observations[:],
            "actions": self.actions,
            "rewards": self.rewards,
            "discounts": self.discounts,
            "next_observations": self.next_observations[:],
        }


class ReplayBuffer:
    """A ring buffer of observations for each environment.

    Args:
        capacity: Observations in the buffer, over all environments.
        shape: Shape of one observation: ``(C, H, W)`` for frames, ``(D,)`` for vectors.
        action_dim: Action dimensions.
        pixels: Whether observations are uint8 frames; otherwise float32 vectors.
        num_envs: Number of environments, each with its own ring.
        stack: Stacked observations; at the start of an episode the first one is repeated.
        n_step: Steps of the n-step return.
        discount: Discount factor gamma.
        window: Window length of the bonus; 0 for none.
        ends_at: Whether windows end at the "observation" or at the "next" one.
        stride: Environment steps between consecutive steps of a window; the actions in between are
            summed.
        run: Consecutive transitions per draw.
        folder: Folder for ``save`` and for memory mapping.
        memory_mapped: Whether observations are in a file of the folder instead of memory.
        device: PyTorch device of samples; the rings are in CPU memory.
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
        if memory_mapped and folder is None:
            raise ValueError("memory_mapped=True needs folder, for its file.")
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
        self.episode_step = torch.zeros(total, dtype=torch.int64)  # 0 for first observations
        self.added = [0] * num_envs  # observations added to each ring so far
        self.log = None if folder is None else ReplayLog(folder, self._arrays, self.slots)

    def __len__(self) -> int:
        """Number of observations in the buffer."""
        return sum(min(added, self.slots) for added in self.added)

    @property
    def _arrays(self) -> dict[str, Tensor]:
        return {
            "observations": self.observations,
            "actions": self.actions,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "ages": self.episode_step,
        }

    def start(self, observation: np.ndarray[Any, Any], env: int = 0) -> None:
        """Adds the first observation of an episode."""
        self._put(env, observation, np.float32(0), 0.0, False, step=0)

    def add(
        self,
        observation: np.ndarray[Any, Any],
        action: np.ndarray[Any, Any],
        reward: float,
        terminated: bool,
        env: int = 0,
    ) -> None:
        """Adds one step of an environment.

        Args:
            observation: The next observation; at the end of an episode, the final one.
            action: The action.
            reward: The extrinsic reward.
            terminated: Whether the episode terminated; False for truncation.
            env: Index of the environment.
        """
        if not self.added[env]:
            raise ValueError(f"environment {env} has no episode yet: start(observation) first.")
        newest = self._rows(env, self.added[env] - 1)
        step = int(self.episode_step[newest]) + 1
        self._put(env, observation, action, reward, terminated, step)

    def _put(
        self, env: int, observation: Any, action: Any, reward: float, terminated: bool, step: int
    ) -> None:
        row = self._rows(env, self.added[env])
        self.observations[row] = torch.as_tensor(observation)
        self.actions[row] = torch.as_tensor(action)
        self.rewards[row] = reward
        self.terminated[row] = terminated
        self.episode_step[row] = step
        self.added[env] += 1

    def _rows(self, envs: Index, numbers: Index) -> Index:
        """Rows of observations, by environment and by index since the start of the run."""
        return envs * self.slots + numbers % self.slots

    def newest(self, env: int = 0) -> Tensor:
        """The newest stack, ``(1, stack * C, H, W)`` or ``(1, stack * D)``."""
        return self._stacks(self._rows(torch.tensor([env]), torch.tensor([self.added[env] - 1])))[:]

    def sample(self, batch: int, generator: Generator) -> Transitions:
        """Draws transitions uniformly.

        Which ones are drawn does not depend on the windows, so that all bonuses of a comparison
        train on the same transitions.
        """
        envs, numbers = self._draw(batch, generator)
        newest = torch.as_tensor(self.added)[envs] - 1
        now = self._rows(envs, numbers)
        step = self.episode_step[now]
        steps = torch.zeros_like(numbers)  # of the n-step return: fewer at the end of an episode
        (rewards, weights), weight = torch.zeros(2, batch), 1.0
        for k in range(1, self.n_step + 1):
            after = self._rows(envs, numbers + k)
            continues = (numbers + k <= newest) & (self.episode_step[after] == step + k)
            continues &= steps == k - 1
            steps += continues
            rewards += weight * self.rewards[after] * continues
            weights += weight * continues
            weight *= self.discount
        last = self._rows(envs, numbers + steps)
        discounts = self.discount**steps * ~self.terminated[last]
        windows = None
        if self.window:
            ends = numbers + (self.ends_at == "next")
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
        """The index ``(N,)`` of the oldest observation of each ring with a complete stack."""
        added = torch.as_tensor(self.added)
        return torch.where(added > self.slots, added - self.slots + self.stack - 1, 0)

    def _draw(self, batch: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Environments and indices ``(B,)`` of the first observations of random transitions."""
        oldest = self._oldest()
        # The newest observation has no successor yet.
        count = (torch.as_tensor(self.added) - 1 - oldest).clamp(min=0)
        ends = count.cumsum(0)
        total = int(ends[-1])
        if not total:
            raise ValueError("the replay buffer has no transition to sample: add steps first.")
        envs, numbers = torch.zeros(2, batch, dtype=torch.int64)
        first = torch.randint(total, (-(-batch // self.run), 1), generator=generator)
        drawn = ((first + torch.arange(self.run)) % total).flatten()[:batch]
        missing = torch.arange(batch)
        for _ in range(MAX_DRAWS):
            env = torch.searchsorted(ends, drawn, right=True)
            number = oldest[env] + drawn - (ends[env] - count[env])
            envs[missing], numbers[missing] = env, number
            # A final observation is followed by the next episode: no transition starts there.
            missing = missing[self.episode_step[self._rows(env, number + 1)] == 0]
            if not len(missing):
                return envs, numbers
            drawn = torch.randint(total, (len(missing),), generator=generator)
        raise ValueError(
            f"the replay buffer's {len(self)} observations have hardly any transition."
        )

    def _stacks(self, rows: Tensor) -> Observations:
        """The stacks that end at the observations in these rows ``(B,)``."""
        first = rows - rows % self.slots
        oldest = rows - self.episode_step[rows]
        back, _ = ring_indices(rows, oldest, self.slots, self.stack)
        return Observations(self.observations, first[:, None] + back.squeeze(-1), self.device)

    def windows_at(self, envs: Tensor, numbers: Tensor) -> Windows:
        """The windows that end at some observations, given by environment and index ``(B,)``.

        All their observations are in ``others``. Overwritten observations are not valid.
        """
        none = torch.zeros(0, dtype=torch.int64)
        return self._windows(none, envs, numbers, torch.zeros_like(envs))

    def _windows(self, given: Tensor, envs: Tensor, numbers: Tensor, runs: Tensor) -> Windows:
        """Windows by index, with every observation once per run.

        Args:
            given: Rows ``(B,)`` of the observations of the transitions; or none, ``(0,)``.
            envs: ``(B,)`` environments of the observations at which windows end.
            numbers: ``(B,)`` their indices since the start of the run.
            runs: ``(B,)`` first transition of the run that each belongs to.
        """
        start = numbers - self.episode_step[self._rows(envs, numbers)]
        oldest = torch.maximum(start, self._oldest()[envs])
        path, valid = ring_indices(numbers, oldest, self.slots, self.window, self.stride)
        path += (envs * self.slots)[:, None, None]  # (B, L, S)
        total = len(self.episode_step)
        owned = given + total * runs[: len(given)]
        needed = path[..., -1] + total * runs[:, None]  # padding repeats the oldest
        keys, found = torch.unique(torch.cat([owned, needed.flatten()]), return_inverse=True)
        positions = torch.full_like(keys, -1)
        positions[found[: len(given)]] = torch.arange(len(given))
        others = positions < 0
        positions[others] = len(given) + torch.arange(int(others.sum()))
        return Windows(
            self._stacks(keys[others] % total),
            (keys[others] // total).to(self.device),
            positions[found[len(given) :]].view(needed.shape).to(self.device),
            valid[..., -1].to(self.device),
            sum_actions(self.actions[path], valid).to(self.device),
        )

    def save(self) -> None:
        """Writes the observations since the last save to the folder."""
        self._require_log().append(self.added)

    def state_dict(self) -> dict[str, Any]:
        """Counts of observations; the observations are in the folder after ``save``."""
        return {"added": list(self.added), "slots": self.slots}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict`` and the observations that ``save`` wrote before it."""
        slots = int(state["slots"])
        no_wrap = max(state["added"]) <= min(slots, self.slots)  # nothing was overwritten
        if len(state["added"]) != self.num_envs or not (slots == self.slots or no_wrap):
            raise ValueError(
                f"the saved replay buffer has {len(state['added'])} rings of {state['slots']} "
                f"slots, this one {self.num_envs} of {self.slots}: use the same replay.capacity."
            )
        added = [int(count) for count in state["added"]]
        self._require_log().read(added)
        self.added = added

    def _require_log(self) -> ReplayLog:
        if self.log is None:
            raise ValueError("this replay buffer was made without folder: it has no files.")
        return self.log
