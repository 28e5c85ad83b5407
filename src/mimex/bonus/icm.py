"""ICM: intrinsic curiosity module, as masked prediction with the last step masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mimex.bonus.inputs import check_one_hot_actions
from mimex.bonus.masks import LastMask
from mimex.bonus.prediction import MaskedPrediction, Shared
from mimex.data.checks import require_positive
from mimex.nn.networks import mlp
from mimex.types import Window


class InverseDynamics(MaskedPrediction):
    """An encoder ``phi`` trained by an inverse dynamics model, which ICM and E3B share.

    The arguments are those of ``ICM``.
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
        require_positive(embed_dim=embed_dim, hidden=hidden)
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
        """Returns the encoder and the inverse model by name."""
        assert self.action_dim is not None
        self.embed = nn.Linear(feature_dim, self.embed_dim)
        self.inverse_model = mlp((2 * self.embed_dim, self.hidden, self.action_dim))
        return {"embed": self.embed, "inverse": self.inverse_model}

    def inverse_loss(
        self, x: Tensor, actions: Tensor | None, valid: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of predicting the action of the newest transition from its two steps.

        Returns:
            The loss ``(B,)``, 0 for windows without a full transition, and ``phi`` of both steps,
            ``(B, E)`` each.
        """
        assert actions is not None
        action = actions[:, -1]  # led from step -2 to step -1
        before, after = self.embed(x[:, -2:]).unbind(1)
        predicted: Tensor = self.inverse_model(torch.cat([before, after], dim=1))
        if self.discrete:
            loss = F.cross_entropy(predicted, action.argmax(1), reduction="none")
        else:
            loss = (predicted - action).square().mean(1)
        return loss * valid[:, -2:].all(1), before, after

    def _read(self, window: Window) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        raw, x, actions, valid = super()._read(window)
        assert window.actions is not None
        assert actions is not None
        if self.discrete is None:
            self.discrete = window.actions.ndim == 2
        if self.discrete:
            check_one_hot_actions(actions[:, -1][valid[:, -2:].all(1)])
        return raw, x, actions, valid

    def extra_state(self) -> dict[str, Any]:
        """Whether actions are discrete."""
        return super().extra_state() | {"discrete": self.discrete if self.steps else None}

    def load_extra(self, state: Mapping[str, Any]) -> None:
        """Restores whether actions are discrete."""
        super().load_extra(state)
        if state.get("discrete") is not None:
            self.discrete = state["discrete"]


class ICM(InverseDynamics):
    """Rewards the error of predicting the next step's features (Pathak et al., 2017).

    The input is a transition ``(phi(s), a, phi(s'))`` with ``phi(s')`` masked. The encoder ``phi``
    is trained by the inverse model alone, which predicts the action from both states.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        action_dim: Action dimensions, or number of discrete actions; inferred from the first
            window, or from the wrapped environment, if None.
        length: Window length, at least 2; only the newest transition is used.
        discrete: Whether actions are discrete (integers or one-hot codes), so that the inverse
            model is a classifier; otherwise it predicts the action with squared error. If None, the
            wrapped environment's action space decides; without one, windows of integers are.
        embed_dim: Output width of ``phi``.
        hidden: Hidden layer width of the inverse and the forward model.
        lr: Adam learning rate.
        shared: ``encoder``, ``normalize``, ``device``, ``seed``: see ``MaskedPrediction``.
    """

    def build(self, feature_dim: int) -> nn.Module:
        """Encoder, inverse model and forward model."""
        networks = self.inverse_networks(feature_dim)
        assert self.action_dim is not None
        width = self.embed_dim
        self.forward_model = mlp((width + self.action_dim, self.hidden, width))
        return nn.ModuleDict(networks | {"forward_": self.forward_model})

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Forward model's error on the newest transition; the inverse model's loss is extra.

        Both are 0 for a window with a single valid step, which has no transition.
        """
        assert actions is not None
        inverse, before, after = self.inverse_loss(x, actions, valid)
        # No gradient from the forward model to the encoder, which would make phi trivial.
        state_action = torch.cat([before.detach(), actions[:, -1]], dim=1)
        forward = (self.forward_model(state_action) - after.detach()).square().mean(1)
        complete = valid[:, -2:].all(1)
        return (forward * complete * masked[0, :, -1]).unsqueeze(0), inverse
