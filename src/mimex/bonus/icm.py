"""ICM: intrinsic curiosity, as masked prediction with the last step hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mimex.bonus.inputs import check_one_hot_actions, check_widths
from mimex.bonus.masks import LastMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.state import Shared
from mimex.nn.mlp import mlp
from mimex.types import Window


class InverseDynamics(MaskedPrediction):
    """Features from which a model can tell the action between two steps: what ICM and E3B share.

    The encoder ``phi`` learns from the inverse model alone. ``ICM`` explains the arguments.
    """

    def __init__(
        self,
        feature_dim: int | None,
        action_dim: int | None,
        length: int,
        *,
        discrete: bool | None,
        embed_dim: int,
        hidden: int,
        lr: float,
        **shared: Unpack[Shared],
    ) -> None:
        check_widths(embed_dim=embed_dim, hidden=hidden)
        self.discrete, self.embed_dim, self.hidden = discrete, embed_dim, hidden
        super().__init__(
            feature_dim,
            length=length,
            mask=LastMask(),
            lr=lr,
            uses_actions=True,
            action_dim=action_dim,
            **shared,
        )

    def inverse_networks(self, feature_dim: int) -> dict[str, nn.Module]:
        """The encoder and the inverse model by name."""
        assert self.action_dim is not None
        self.embed = nn.Linear(feature_dim, self.embed_dim)
        self.inverse_model = mlp((2 * self.embed_dim, self.hidden, self.action_dim))
        return {"embed": self.embed, "inverse": self.inverse_model}

    def inverse_loss(
        self, x: Tensor, actions: Tensor | None, valid: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How badly the action of the newest transition is told from its two steps.

        Returns:
            The loss ``(B,)``, zero where there is no whole transition, and the features of both
            steps ``(B, E)``.
        """
        assert actions is not None
        action = actions[:, -1]  # led from step -2 to step -1
        before, after = self.embed(x[:, -2:]).unbind(1)
        guess: Tensor = self.inverse_model(torch.cat([before, after], dim=1))
        if self.discrete:
            loss = F.cross_entropy(guess, action.argmax(1), reduction="none")
        else:
            loss = (guess - action).square().mean(1)
        return loss * valid[:, -2:].all(1), before, after

    def _read(self, window: Window) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        if self.discrete is None and window.actions is not None:
            self.discrete = window.actions.ndim == 2
        raw, x, actions, valid = super()._read(window)
        if self.discrete and actions is not None:
            check_one_hot_actions(actions[:, -1][valid[:, -2:].all(1)])
        return raw, x, actions, valid

    def extra_state(self) -> dict[str, Any]:
        """What actions are."""
        return super().extra_state() | {"discrete": self.discrete if self.steps else None}

    def load_extra(self, state: Mapping[str, Any]) -> None:
        """What actions were."""
        super().load_extra(state)
        if state.get("discrete") is not None:
            self.discrete = state["discrete"]


class ICM(InverseDynamics):
    """Pays for the error of predicting the next step's features (Pathak et al., 2017).

    The input is a transition ``(phi(s), a, phi(s'))``; ``phi(s')`` is hidden. The encoder ``phi``
    learns from the inverse model alone: to tell the action from the two states.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        action_dim: Numbers an action, or the number of discrete actions; taken from the first
            window, or from the wrapped environment, when left out.
        length: Steps a window, at least 2; only the newest transition is looked at.
        discrete: Whether an action is one of ``action_dim`` (integers, or one-hot codes), so that
            the inverse model classifies; otherwise it predicts all numbers of the action by squared
            error. When left out, as the wrapped environment's action space says; without one, where
            windows hold integers.
        embed_dim: Width of ``phi``.
        hidden: Width of the hidden layer of the inverse and of the forward model.
        lr: Learning rate of Adam.
        shared: As of ``Resumable``: ``encoder``, ``normalise``, ``device``, ``seed``.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        action_dim: int | None = None,
        length: int = 2,
        *,
        discrete: bool | None = None,
        embed_dim: int = 288,
        hidden: int = 256,
        lr: float = 1e-3,
        **shared: Unpack[Shared],
    ) -> None:
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
        """Encoder, inverse model and forward model."""
        networks = self.inverse_networks(feature_dim)
        assert self.action_dim is not None
        width = self.embed_dim
        self.forward_model = mlp((width + self.action_dim, self.hidden, width))
        return nn.ModuleDict(networks | {"forward_": self.forward_model})

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The forward model's error on the newest transition; the inverse model's loss beside it.

        A window whose newest transition would reach back over the episode's first step has
        neither.
        """
        assert actions is not None
        inverse, before, after = self.inverse_loss(x, actions, valid)
        # The encoder must not make its features easy to predict: the forward error stops here.
        known = torch.cat([before.detach(), actions[:, -1]], dim=1)
        forward = (self.forward_model(known) - after.detach()).square().mean(1)
        whole = valid[:, -2:].all(1)  # there is a transition at all
        return (forward * whole * hidden[0, :, -1]).unsqueeze(0), inverse
