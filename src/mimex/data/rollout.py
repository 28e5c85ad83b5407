"""Storage of a rollout: M steps of N environments, allocated once and reused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from mimex.data.checks import require_positive

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
"""Shape and dtype of each part of a stored observation, by name."""

ObsDict = dict[str, Tensor]
"""Stored observations ``(..., *shape)``, by name of the part."""


class Rollout:
    """M steps of N environments.

    Attributes:
        observations: ``(M + 1, N, ...)`` by part: on which the policy acted, and after the last
            step.
        features: ``(M + 1, N, D)``: the bonus's features of the observations.
        actions: ``(M, N, A)``.
        log_probs: ``(M, N)``: log-probability of each action when it was sampled.
        rewards: ``(M, N)`` extrinsic.
        terminated: ``(M, N)`` bool.
        truncated: ``(M, N)`` bool.
        restarted: ``(M, N)`` bool: the episode began at an archived state (``train/restarts.py``).

    Args:
        steps: M.
        num_envs: N.
        layout: Parts of a stored observation.
        action_dim: A.
        feature_dim: D.
        device: PyTorch device of all arrays.
    """

    def __init__(
        self,
        steps: int,
        num_envs: int,
        layout: Layout,
        action_dim: int,
        feature_dim: int,
        device: torch.device | str = "cpu",
    ) -> None:
        require_positive(steps=steps, num_envs=num_envs)
        zeros, grid = partial(torch.zeros, device=device), (steps, num_envs)
        self.steps, self.num_envs = steps, num_envs
        self.observations: ObsDict = {
            part: zeros((steps + 1, num_envs, *shape), dtype=dtype)
            for part, (shape, dtype) in layout.items()
        }
        self.features = zeros((steps + 1, num_envs, feature_dim))
        self.actions = zeros((*grid, action_dim))
        self.log_probs, self.rewards = zeros(grid), zeros(grid)
        self.terminated, self.truncated, self.restarted = (
            zeros(grid, dtype=torch.bool) for _ in range(3)
        )
        self._finals: list[ObsDict] = []
        self._final_features: list[Tensor] = []

    def arrays(self) -> dict[str, object]:
        """The arrays by name, for debugging."""
        return {name: value for name, value in vars(self).items() if name[0] != "_"}

    def clear(self) -> None:
        """Removes the final observations; the arrays will be overwritten."""
        self._finals.clear()
        self._final_features.clear()

    def put_observation(self, step: int, stored: ObsDict, features: Tensor) -> None:
        """Writes the observation before a step, or after the last one (``step`` = M)."""
        for part, values in stored.items():
            self.observations[part][step] = values
        self.features[step] = features

    def put_finals(self, stored: ObsDict, features: Tensor) -> None:
        """Appends the final observations ``(F, ...)`` of one step, in the order of environments."""
        self._finals.append(stored)
        self._final_features.append(features)

    @property
    def ended(self) -> Tensor:
        """``(M, N)`` bool: the step was the last of its episode."""
        return self.terminated | self.truncated

    def finals(self) -> ObsDict:
        """The final observations ``(F, ...)``, one for each ended episode in row-major order."""
        return {
            part: torch.cat([values[:0].flatten(0, 1), *(final[part] for final in self._finals)])
            for part, values in self.observations.items()
        }

    def final_features(self) -> Tensor:
        """The bonus's features of the final observations, ``(F, D)``."""
        return torch.cat([self.features[:0].flatten(0, 1), *self._final_features])

    def newest(self, depth: int, before: ObsDict) -> ObsDict:
        """The last ``depth`` observations on which the policy acted, ``(N, depth, ...)`` by part.

        Args:
            depth: Number of observations.
            before: The result of the previous rollout, for rollouts shorter than ``depth``; {} for
                none, which is padded with zeros.
        """
        found: ObsDict = {}
        for part, values in self.observations.items():
            acted_on = values[:-1].transpose(0, 1)
            older = before.get(part, acted_on.new_zeros(len(acted_on), depth, *values.shape[2:]))
            both = torch.cat([older, acted_on], dim=1)
            found[part] = both[:, both.shape[1] - depth :].clone()
        return found
