"""ICM: intrinsic curiosity, as masked prediction with the last step hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mimex.bonus.inputs import Encoder, check_widths, tell_codes
from mimex.bonus.masks import LastMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.nn.mlp import mlp
from mimex.types import Window


class ICM(MaskedPrediction):
    """Pays for the error of predicting the next step's features (Pathak et al., 2017).

    The input is a transition ``(phi(s), a, phi(s'))``; ``phi(s')`` is hidden. The encoder ``phi``
    learns from the inverse model alone: to tell the action from the two states.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        action_dim: Numbers an action, or the number of discrete actions; taken from the first
            window, or from the wrapped environment, when left out.
        length: Steps a window, at least 2; only the newest transition is looked at.
        discrete: Actions are one of ``action_dim``; the inverse model then classifies. When left
            out, whether they are one-hot tells.
        embed_dim: Width of ``phi``.
        hidden: Width of the hidden layer of the inverse and of the forward model.
        lr: Learning rate of Adam.
        encoder: Turns raw observations into features; needed for images.
        normalise: Feed features normalised by running statistics.
        device: Where the networks live.
        seed: Of the initial weights.
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
        encoder: Encoder | None = None,
        normalise: bool = False,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        check_widths(embed_dim=embed_dim, hidden=hidden)
        if action_dim is not None and action_dim < 1:
            raise ValueError(f"action_dim={action_dim} must be at least 1.")
        if feature_dim is not None and action_dim is None:
            raise ValueError("feature_dim is given and action_dim is not: give both or neither.")
        self.discrete, self.embed_dim, self.hidden = discrete, embed_dim, hidden
        super().__init__(
            feature_dim,
            length=length,
            mask=LastMask(),
            masks=1,
            lr=lr,
            action_dim=action_dim,
            encoder=encoder,
            normalise=normalise,
            device=device,
            seed=seed,
        )

    def _read(self, window: Window) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        if self.action_dim is None and window.actions is not None:
            if window.actions.ndim != 3:
                raise ValueError(
                    "actions are discrete, and their number cannot be seen from a window: give "
                    "action_dim."
                )
            self.action_dim = int(window.actions.shape[2])
        if self.action_dim is None:
            raise ValueError(
                "ICM uses actions, but the window has none: Window(features, valid, actions), "
                "where actions[:, k] led to features[:, k]."
            )
        whole = window.valid[:, -2:].all(1, keepdim=True)  # windows with a transition
        if self.discrete is None and window.actions is not None and bool(whole.any()):
            codes = window.actions.ndim == 2
            self.discrete = codes or tell_codes(window.actions[:, -1:], whole, None)
        return super()._read(window)

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, statistics, generator, counters, and what actions are."""
        actions = {"action_dim": self.action_dim, "discrete": self.discrete if self.steps else None}
        return super().state_dict() | actions

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        before = self.action_dim
        self.action_dim = before or state.get("action_dim")
        try:
            super().load_state_dict(state)
        except Exception:
            self.action_dim = before
            raise
        if state.get("discrete") is not None:
            self.discrete = state["discrete"]

    def build(self, feature_dim: int) -> nn.Module:
        """Encoder, inverse model and forward model."""
        assert self.action_dim is not None
        width = self.embed_dim
        self.embed = nn.Linear(feature_dim, width)
        self.inverse_model = mlp((2 * width, self.hidden, self.action_dim))
        self.forward_model = mlp((width + self.action_dim, self.hidden, width))
        return nn.ModuleDict(
            {"embed": self.embed, "inverse": self.inverse_model, "forward_": self.forward_model}
        )

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The forward model's error on the newest transition; the inverse model's loss beside it.

        A window whose newest transition would reach back over the episode's first step has
        neither.
        """
        assert actions is not None
        action = actions[:, -1]  # led from step -2 to step -1
        before, after = self.embed(x[:, -2:]).unbind(1)
        guess: Tensor = self.inverse_model(torch.cat([before, after], dim=1))
        if self.discrete:
            inverse = F.cross_entropy(guess, action.argmax(1), reduction="none")
        else:
            inverse = (guess - action).square().mean(1)
        # The encoder must not make its features easy to predict: the forward error stops here.
        predicted: Tensor = self.forward_model(torch.cat([before.detach(), action], dim=1))
        forward = (predicted - after.detach()).square().mean(1)
        whole = valid[:, -2:].all(1)  # there is a transition at all
        return (forward * whole * hidden[0, :, -1]).unsqueeze(0), inverse * whole
