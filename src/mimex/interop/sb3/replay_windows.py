"""Windows of steps sampled from a replay buffer of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from torch import Tensor

from mimex.data.trail import replay_rows, sum_between
from mimex.data.windows import EndsAt
from mimex.types import Window

Read = Callable[[Any], Tensor]


class EpisodeAges:
    """How many observations of the same episode were before each one in the buffer.

    An episode ends where ``done`` says so, and also where the next stored observation is not the
    one that the last step led to: Stable-Baselines3 resets the environments without a ``done``
    when ``learn`` is called anew.

    Args:
        capacity: Slots of the ring.
        num_envs: Environments side by side.
    """

    def __init__(self, capacity: int, num_envs: int) -> None:
        self.of = np.zeros((capacity, num_envs), dtype=np.int64)
        self._next = np.zeros(num_envs, dtype=np.int64)
        self._led_to: Any = None  # the newest next observations
        self._done = np.ones(num_envs, dtype=bool)

    def add(self, slot: int, obs: Any, next_obs: Any, done: Any) -> None:
        """Takes in one step of each environment, which goes to this slot."""
        continues = ~self._done
        if self._led_to is not None:
            continues &= _equal(obs, self._led_to)
        self.of[slot] = np.where(continues, self._next, 0)
        self._next = self.of[slot] + 1
        self._done = np.asarray(done, dtype=bool).reshape(-1)
        self._led_to = _copied(next_obs)


def replay_window(
    buffer: ReplayBuffer,
    slots: np.ndarray[Any, Any],
    envs: np.ndarray[Any, Any],
    *,
    ages: np.ndarray[Any, Any],
    length: int,
    stride: int,
    ends_at: EndsAt,
    read: Read,
    read_action: Read | None,
) -> Window:
    """The windows of the transitions at these slots of these environments.

    Args:
        buffer: Where they are.
        slots: ``(B,)``.
        envs: ``(B,)``.
        ages: ``(capacity, N)`` of ``EpisodeAges``.
        length: Steps a window.
        stride: Steps between two of a window, whose actions are summed.
        ends_at: ``"next"`` or ``"observation"``.
        read: Makes rows of stored observations.
        read_action: Makes rows of stored actions; None for windows without.
    """
    steps = length * stride
    past = steps - 1 if ends_at == "next" else steps  # of stored observations
    newest, capacity = torch.as_tensor(slots), buffer.buffer_size
    kept = buffer.size() - 1 - (buffer.pos - 1 - newest) % capacity  # still there before each
    oldest = newest - torch.minimum(torch.as_tensor(ages[slots, envs]), kept)
    # One more, for the action that led to the oldest.
    path, known = replay_rows(newest, oldest, capacity, past + 1)
    rows, valid = path.squeeze(-1), known.squeeze(-1)
    places, owners = rows.numpy(), envs[:, None]
    batch, shown = len(slots), slice(stride, None, stride)  # the first row is there for its action
    whole = valid[:, shown]
    parts = []
    if past >= stride:
        seen = _at(buffer.observations, (places[:, shown], owners), whole.numel())
        parts.append(read(seen).cpu().view(*whole.shape, -1) * whole[:, :, None])
    if ends_at == "next":
        parts.append(read(_at(buffer.next_observations, (slots, envs), batch)).cpu()[:, None])
    if ends_at == "next":
        whole = torch.cat([whole, torch.ones(batch, 1, dtype=torch.bool)], dim=1)
    actions = None
    if read_action is not None:
        # The action at a stored step led to the observation after it; to a start none led.
        took = read_action(buffer.actions[places, owners].reshape(batch * (past + 1), -1))
        took = took.view(batch, past + 1, -1)[:, :steps].unflatten(1, (length, stride))
        actions = sum_between(took, valid[:, :steps].unflatten(1, (length, stride)))
    return Window(torch.cat(parts, dim=1), whole, actions)


def _at(stored: Any, places: tuple[Any, Any], count: int) -> Any:
    """The stored observations at these places, flattened to a batch."""
    if isinstance(stored, dict):
        return {key: _at(values, places, count) for key, values in stored.items()}
    return stored[places].reshape(count, *stored.shape[2:])


def _equal(left: Any, right: Any) -> Any:
    """Which environments have the same observation: ``(N,)``."""
    if isinstance(left, dict):
        return np.all([_equal(left[key], right[key]) for key in left], axis=0)
    same = np.asarray(left) == np.asarray(right)
    return np.all(same.reshape(len(same), -1), axis=1)


def _copied(observations: Any) -> Any:
    if isinstance(observations, dict):
        return {key: np.array(values) for key, values in observations.items()}
    return np.array(observations)
