"""PPO: proximal policy optimisation (Schulman et al., 2017), as the paper's on-policy agent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from mimex.agents.encoders import Encoder
from mimex.agents.errors import NotFiniteError
from mimex.agents.ppo_gradient import STATISTICS, gradients
from mimex.agents.ppo_settings import PPOSettings
from mimex.bonus.state import load_optimizer, optimizer_state, require_same
from mimex.data.rollout import Stored
from mimex.nn import selu
from mimex.nn.mlp import mlp
from mimex.nn.parallel import in_order, pieces
from mimex.types import Metrics


class Batch(NamedTuple):
    """What one update learns from: B steps in any order, H value heads."""

    observations: Stored  # (B, ...) by part
    actions: Tensor  # (B, A)
    log_probs: Tensor  # (B,)
    advantages: Tensor  # (B,)
    values: Tensor  # (B, H)
    returns: Tensor  # (B, H)

    def rows(self, index: Tensor) -> Batch:
        """Some of the steps."""
        chosen = {part: v.index_select(0, index) for part, v in self.observations.items()}
        return Batch(chosen, *(array.index_select(0, index) for array in self[1:]))


class PPO:
    """A Gaussian policy and its critic, with all they need to go on after a restart.

    Args:
        encoder: Of the observations.
        action_dim: Numbers an action.
        settings: Of the algorithm.
        seed: Of actions and of the order of minibatches. Weights come from PyTorch's own generator.
    """

    def __init__(
        self, encoder: Encoder, action_dim: int, settings: PPOSettings, seed: int = 0
    ) -> None:
        self.encoder, self.settings, self.action_dim = encoder, settings, action_dim
        self.heads = 2 if settings.two_heads else 1
        widths = (encoder.width, *settings.hidden)
        self.actor = _network((*widths, action_dim), last_gain=0.01)
        self.critic = _network((*widths, self.heads), last_gain=settings.value_gain)
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(settings.initial_std)))
        self.network = nn.ModuleDict(
            {"encoder": encoder, "actor": self.actor, "critic": self.critic}
        )
        self.network.register_parameter("log_std", self.log_std)
        self._of_actor: list[Tensor] = [*self.actor.parameters()]
        self._of_critic: list[Tensor] = [*self.critic.parameters()]
        self._of_encoder = [p for p in encoder.parameters() if p.requires_grad]
        names: dict[Tensor, str] = {p: name for name, p in self.network.named_parameters()}
        order = (*self._of_actor, *self._of_critic, self.log_std, *self._of_encoder)
        self._parameters = {names[p]: p for p in order}  # in the order of their derivatives
        self.optimizer = torch.optim.Adam(self._parameters.values(), settings.lr, fused=True)
        self.generator = Generator().manual_seed(seed)

    @torch.no_grad()
    def act(self, stored: Stored, *, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Draws actions ``(B, A)``; also their log-densities ``(B,)`` and the bonus's features."""
        features = self.encoder.embed(stored)
        mean = selu.outputs(self.encoder.join(stored, features), self._of_actor)[-1]
        if deterministic:
            noise = torch.zeros_like(mean)
        else:
            noise = torch.randn(mean.shape, generator=self.generator)
        actions = torch.addcmul(mean, noise, self.log_std.exp())
        return actions, self._log_density(noise), features

    @torch.no_grad()
    def features(self, stored: Stored) -> Tensor:
        """What the bonus sees of observations, ``(B, D)``."""
        return self.encoder.embed(stored)

    def values(self, stored: Stored) -> Tensor:
        """Values ``(B, H)`` of observations."""

        @torch.no_grad()
        def value(rows: slice) -> Tensor:
            some = {part: v[rows] for part, v in stored.items()}
            inputs = self.encoder.join(some, self.encoder.embed(some))
            return selu.outputs(inputs, self._of_critic)[-1]

        size = len(stored["vector"])
        chunk = self.encoder.chunk
        chunks = [slice(start, start + chunk) for start in range(0, size, chunk)]
        return torch.cat([torch.zeros(0, self.heads), *in_order(value, chunks)])

    def update(self, batch: Batch, lr: float) -> Metrics:
        """Learns from a rollout, with a learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        size = len(batch.actions)
        if size < self.settings.minibatches:
            raise ValueError(
                f"minibatches={self.settings.minibatches} of a rollout of {size} steps: there must "
                "be a step for each; use fewer minibatches or more environments."
            )
        batch = batch._replace(advantages=_normalised(batch.advantages))
        sums, largest_norm = torch.zeros(len(STATISTICS)), 0.0
        for _ in range(self.settings.epochs):
            order = torch.randperm(size, generator=self.generator)
            for rows in order.tensor_split(self.settings.minibatches):
                statistics, norm = self._step(batch, rows)
                sums += statistics
                largest_norm = max(largest_norm, norm)
        means = (sums / (self.settings.epochs * self.settings.minibatches)).tolist()
        return {
            **{f"ppo/{name}": mean for name, mean in zip(STATISTICS, means, strict=True)},
            "ppo/grad_norm": largest_norm,
            "ppo/lr": lr,
            "ppo/std": float(self.log_std.detach().exp().mean()),
            "ppo/entropy": float(self._entropy().detach()),
        }

    def _step(self, batch: Batch, rows: Tensor) -> tuple[Tensor, float]:
        """One optimizer step on some rows: statistics and the gradient's length before the clip."""
        share = 1 / len(rows)
        chunks = pieces(rows, self.encoder.chunk)
        # Sums over chunks in their order: bit for bit the same on any number of threads.
        parts = in_order(lambda chunk: self._gradients(batch, chunk, share), chunks)
        total, statistics = parts[0]
        for part, more in parts[1:]:
            total.add_(part)
            statistics.add_(more)
        norm = float(torch.linalg.vector_norm(total))
        if not math.isfinite(norm) or not bool(statistics.isfinite().all()):
            named = dict(zip(STATISTICS, statistics.tolist(), strict=True))
            raise NotFiniteError(
                f"PPO's loss or its gradient is not finite: {named}, gradient's length {norm}. "
                "The weights are those before this step.",
                batch.rows(rows),
            )
        if norm > self.settings.grad_norm:
            total.mul_(self.settings.grad_norm / norm)
        start = 0
        for parameter in self._parameters.values():
            stop = start + parameter.numel()
            parameter.grad = total[start:stop].view_as(parameter)
            start = stop
        self.optimizer.step()
        return statistics, norm

    @torch.no_grad()
    def _gradients(self, batch: Batch, rows: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Derivatives of the loss of some rows, by all parameters in one row, and statistics."""
        settings = self.settings
        seen = {part: v.index_select(0, rows) for part, v in batch.observations.items()}
        with torch.set_grad_enabled(bool(self._of_encoder)):
            inputs = self.encoder.join(seen, self.encoder.embed(seen))
        found, of_inputs, statistics = gradients(
            inputs.detach(),
            rows,
            *batch[1:],
            self.log_std,
            self._of_actor,
            self._of_critic,
            share,
            settings.clip,
            math.inf if settings.value_clip is None else settings.value_clip,
            settings.value_weight,
            settings.entropy_weight,
            inputs.requires_grad,
        )
        if inputs.requires_grad:
            more = torch.autograd.grad(inputs, self._of_encoder, of_inputs)
            found = torch.cat([found, *(gradient.flatten() for gradient in more)])
        return found, statistics

    def _log_density(self, noise: Tensor) -> Tensor:
        """Log-density ``(B,)`` of actions that are so many standard deviations ``(B, A)`` off."""
        constant = 0.5 * self.action_dim * math.log(2 * math.pi)
        return -0.5 * noise.square().sum(1) - self.log_std.sum() - constant

    def _entropy(self) -> Tensor:
        return self.log_std.sum() + 0.5 * self.action_dim * (1 + math.log(2 * math.pi))

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, statistics of observations and generator."""
        return {
            "network": {name: v.clone() for name, v in self.network.state_dict().items()},
            "optimizer": optimizer_state(self.optimizer, self._parameters),
            "normaliser": self.encoder.normaliser.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        require_same(self.network.state_dict(), state["network"], "this PPO")
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizer, self._parameters, state["optimizer"])
        self.encoder.normaliser.load_state_dict(state["normaliser"])
        self.generator.set_state(state["generator"])


def _network(widths: tuple[int, ...], last_gain: float) -> nn.Sequential:
    return mlp(widths, activation=nn.SELU, gain=math.sqrt(2), last_gain=last_gain)


def _normalised(advantages: Tensor) -> Tensor:
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
