"""E3B: elliptical episodic bonuses on features of an inverse dynamics model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from mimex.bonus.icm import InverseDynamics
from mimex.bonus.inputs import check_finite, isolated
from mimex.bonus.prediction import Shared
from mimex.nn.state import require_same
from mimex.types import Window


class E3B(InverseDynamics):
    """Rewards steps unlike all earlier ones of their episode (Henaff et al., 2022).

    The reward is ``phi^T C^-1 phi`` with ``C = ridge * I + sum of phi phi^T`` over the earlier
    steps of the episode. The first observation of an episode enters ``C`` and has reward 0, because
    no action caused it. ``phi`` is trained by an inverse dynamics model. ``follow`` keeps ``C^-1``
    of each environment from step to step; it is part of the state.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        action_dim: Action dimensions, or number of discrete actions; inferred from the first
            window, or from the wrapped environment, if None.
        length: Window length, at least 2: the inverse model learns from the newest transition.
        discrete: Whether actions are discrete (integers or one-hot codes), so that the inverse
            model is a classifier; otherwise it predicts the action with squared error. If None, the
            wrapped environment's action space decides; without one, windows of integers are.
        ridge: Initial ``C`` divided by the identity; smaller values reward the first steps more.
        embed_dim: Output width of ``phi``; ``C`` of each environment is its square.
        hidden: Hidden layer width of the inverse model.
        lr: Adam learning rate.
        shared: ``encoder``, ``normalize``, ``device``, ``seed``: see ``MaskedPrediction``.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        action_dim: int | None = None,
        length: int = 2,
        *,
        discrete: bool | None = None,
        ridge: float = 0.1,
        embed_dim: int = 64,
        hidden: int = 256,
        lr: float = 1e-3,
        **shared: Unpack[Shared],
    ) -> None:
        if not 0 < ridge < float("inf"):
            raise ValueError(f"ridge={ridge} must be positive and finite.")
        self.ridge = ridge
        self.inverses: Tensor | None = None  # (N, E, E): C^-1 of each environment's episode
        super().__init__(
            feature_dim,
            action_dim,
            length,
            discrete=discrete,
            embed_dim=embed_dim,
            hidden=hidden,
            lr=lr,
            **shared,
        )

    def build(self, feature_dim: int) -> nn.Module:
        """Encoder and inverse model."""
        return nn.ModuleDict(self.inverse_networks(feature_dim))

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reward as if the episode started with the window, and the inverse model's loss."""
        bonus, _ = self._from_start(x, valid)
        return bonus, self.inverse_loss(x, actions, valid)[0], torch.zeros_like(bonus)

    @isolated
    def follow(self, window: Window, starts: Tensor, envs: Tensor | None = None) -> Tensor:
        """Scores one step of each environment ``(B,)`` and adds it to the episode so far.

        At the start of an episode its steps are the valid ones of the window: with
        ``ends_at="next"`` the first observation, with reward 0, and the one after the first action.
        """
        _, x, _, valid = self._read(window)
        if envs is None:
            envs = torch.arange(len(x), device=self.device)
        starts = torch.as_tensor(starts, device=self.device)
        envs = torch.as_tensor(envs, device=self.device)
        if starts.shape != (len(x),) or envs.shape != (len(x),) or starts.dtype != torch.bool:
            raise ValueError(
                f"starts is {starts.dtype} of shape {tuple(starts.shape)}, and envs has shape "
                f"{tuple(envs.shape)}; expected bool of ({len(x)},), and one for every window."
            )
        inverses = self._fresh(0) if self.inverses is None else self.inverses
        added = max(int(envs.max()) + 1 - len(inverses), 0)
        inverses = torch.cat([inverses, self._fresh(added)])
        bonus, after = elliptical(inverses[envs], self.embed(x[:, -1]) * valid[:, -1:])
        if bool(starts.any()):
            bonus[starts], after[starts] = self._from_start(x[starts], valid[starts])
        check_finite(bonus, "the reward")
        self.inverses = inverses.index_copy(0, envs, after)
        return bonus

    @torch.no_grad()
    def _from_start(self, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Reward ``(B,)`` and ``C^-1`` of episodes that consist of a window's steps.

        The reward of an episode's only step, which no action caused, is 0.
        """
        phi = self.embed(x) * valid.unsqueeze(2)  # (B, L, E)
        inverse = self._fresh(len(x))
        for step in range(x.shape[1]):
            bonus, inverse = elliptical(inverse, phi[:, step])
        return bonus * valid[:, :-1].any(1), inverse

    def _fresh(self, count: int) -> Tensor:
        """``C^-1`` of new episodes: ``(count, E, E)``."""
        one = torch.eye(self.embed_dim, dtype=torch.float32, device=self.device) / self.ridge
        return one.expand(count, -1, -1)

    def extra_state(self) -> dict[str, Any]:
        """Whether actions are discrete, and the episodes so far."""
        episodes = {} if self.inverses is None else {"episodes": self.inverses.clone()}
        return super().extra_state() | episodes

    def load_extra(self, state: Mapping[str, Any]) -> None:
        """Restores the episodes so far."""
        super().load_extra(state)
        inverses = state.get("episodes")
        if inverses is not None:
            expected = self._fresh(len(inverses))
            require_same({"episodes": expected}, {"episodes": inverses}, "this E3B")
            inverses = inverses.to(self.device, copy=True)
        self.inverses = inverses


def elliptical(inverse: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ``phi^T C^-1 phi`` of each row, and ``(C + phi phi^T)^-1`` by Sherman-Morrison.

    Args:
        inverse: ``(B, E, E)``: ``C^-1``.
        phi: ``(B, E)``.
    """
    along = (inverse @ phi.unsqueeze(2)).squeeze(2)  # (B, E)
    bonus = (phi * along).sum(1)
    scaled = along / (1 + bonus).unsqueeze(1)
    return bonus, torch.baddbmm(inverse, scaled.unsqueeze(2), along.unsqueeze(1), alpha=-1)
