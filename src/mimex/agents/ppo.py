"""PPO: proximal policy optimisation (Schulman et al., 2017), as the paper's on-policy agent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from mimex.agents.actions import ActionWriter, distribution_for
from mimex.agents.encoders import Encoder
from mimex.agents.errors import NotFiniteError
from mimex.agents.ppo_settings import ACTIVATIONS, PPOSettings
from mimex.agents.returns import Batch, ReturnScale, explained_variance, standardised
from mimex.bonus.state import load_optimizer, optimizer_state, require_same
from mimex.data.rollout import Stored
from mimex.nn import processes
from mimex.nn.generators import load_generator
from mimex.nn.mlp import mlp
from mimex.nn.parallel import in_order, pieces
from mimex.types import Metrics

STATISTICS = ("policy_loss", "value_loss", "approx_kl", "clip_fraction", "entropy")

LR_STEP, LR_LEAST = 1.5, 1e-5
"""Factor by which an adaptive learning rate moves, and how low it may fall (those of rsl_rl); one
that begins lower stays there."""

TOO_FAR = 4
"""With an adaptive rate, a pass that has come so many times ``target_kl`` is an update's last."""


class PPO:
    """A policy and its critic, with all they need to go on after a restart.

    Works where its encoder does.

    Args:
        encoder: Of the observations.
        actions: What they are to the environments.
        settings: Of the algorithm.
        seed: Of actions and of the order of minibatches. Weights come from PyTorch's own generator.
    """

    def __init__(
        self, encoder: Encoder, actions: ActionWriter, settings: PPOSettings, seed: int = 0
    ) -> None:
        self.encoder, self.settings, self.actions = encoder, settings, actions
        self.device, self.feature_dim, self.action_dim = (
            encoder.device,
            encoder.feature_dim,
            actions.size,
        )
        self.heads = 2 if settings.two_heads else 1
        self.lr = settings.lr
        encoder.normaliser.clip = settings.observation_clip
        encoder.normaliser.follow = settings.normalise_observations
        self.actor = self._network(actions.size, last_gain=0.01)
        self.critic = self._network(self.heads, last_gain=settings.value_gain)
        self.return_scale = ReturnScale(
            self.heads, follow=settings.normalise_values, device=self.device
        )
        self.distribution = distribution_for(actions, settings.initial_std, settings.min_std)
        self.network = nn.ModuleDict(
            {
                "encoder": encoder,
                "actor": self.actor,
                "critic": self.critic,
                "distribution": self.distribution,
            }
        ).to(self.device)
        groups = (
            [*self.actor.parameters(), *self.distribution.parameters()],
            [*self.critic.parameters()],
            [p for p in encoder.parameters() if p.requires_grad],
        )
        self._group_sizes = [sum(p.numel() for p in group) for group in groups]
        names: dict[Tensor, str] = {p: name for name, p in self.network.named_parameters()}
        self._parameters = {names[p]: p for group in groups for p in group}
        rates = [{"params": [*groups[0], *groups[2]]}, {"params": groups[1]}]
        self.optimizer = torch.optim.Adam(rates, settings.lr, eps=settings.adam_eps, fused=True)
        self.generator = Generator(self.device).manual_seed(seed)

    @torch.no_grad()
    def act(self, stored: Stored, *, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Draws actions ``(B, A)``; also their log-densities ``(B,)`` and the bonus's features."""
        features, policy = self.encoder.embed(stored), self.distribution
        outputs: Tensor = self.actor(self.encoder.join(stored, features))
        actions = policy.mode(outputs) if deterministic else policy.sample(outputs, self.generator)
        return actions, policy.log_prob(outputs, actions), features

    def policy(
        self, observation: Any, *, deterministic: bool = True, step: int = 0
    ) -> NDArray[Any]:
        """Actions, as the environments take them, for a batch of their observations."""
        stored = self.encoder.read(observation)
        return self.actions(self.act(stored, deterministic=deterministic)[0])

    @torch.no_grad()
    def features(self, stored: Stored) -> Tensor:
        """What the bonus sees of observations, ``(B, D)``."""
        return self.encoder.embed(stored)

    def values(self, stored: Stored) -> Tensor:
        """Values ``(B, H)`` of observations."""
        return self.return_scale.values(self._outputs(stored))

    def _outputs(self, stored: Stored) -> Tensor:
        """What the critic gives out for observations, ``(B, H)``: values in its own units."""

        @torch.no_grad()
        def outputs(rows: slice) -> Tensor:
            some = {part: v[rows] for part, v in stored.items()}
            found: Tensor = self.critic(self.encoder.join(some, self.encoder.embed(some)))
            return found

        size = len(stored["vector"])
        chunk = self.encoder.chunk
        chunks = [slice(start, start + chunk) for start in range(0, size, chunk)]
        empty = torch.zeros(0, self.heads, device=self.device)
        return torch.cat([empty, *in_order(outputs, chunks)])

    def update(
        self, batch: Batch, done: float = 0.0, weights: Sequence[float] = (), apart: bool = True
    ) -> Metrics:
        """Learns from a rollout.

        Args:
            batch: The rollout; advantages, values and returns in units of reward.
            done: Share of the run that is behind us, for a learning rate with a schedule.
            weights: Of each head's advantages; all 1 by default.
            apart: Whether each is divided by its returns' deviation, so that none drowns another.
        """
        settings, size = self.settings, len(batch.actions)
        if size < settings.minibatches:
            raise ValueError(
                f"minibatches={settings.minibatches} of a rollout of {size} steps: there must "
                "be a step for each; use fewer minibatches or more environments."
            )
        returns = processes.joined(batch.returns)
        if not bool(returns.isfinite().all()):
            raise NotFiniteError("The returns are not finite. Nothing was changed.", batch)
        explained = explained_variance(processes.joined(batch.values), returns)
        if settings.lr_schedule == "cosine":
            self.lr = settings.lr * 0.5 * (1 + math.cos(math.pi * min(max(done, 0.0), 1.0)))
        last = self.critic[-1]
        assert isinstance(last, nn.Linear)
        self.return_scale.update(returns, last)
        advantages = self.return_scale.combined(batch.advantages, weights, apart=apart)
        values = self.return_scale.targets(batch.values)
        if settings.value_clip is not None and settings.normalise_values:
            # While returns have no std, as before the first update, values say nothing of outputs.
            values = self._outputs(batch.observations)
        batch = batch._replace(
            advantages=standardised(advantages),
            values=values,
            returns=self.return_scale.targets(batch.returns),
        )
        sums = torch.zeros(len(STATISTICS), device=self.device)
        norms = torch.zeros(1 + len(self._group_sizes), device=self.device)
        passes = 0
        for _ in range(settings.epochs):
            order = torch.arange(size, device=self.device)
            if settings.shuffle:
                order = torch.randperm(size, generator=self.generator, device=self.device)
            last_pass = torch.zeros(len(STATISTICS), device=self.device)
            for rows in order.tensor_split(settings.minibatches):
                statistics, lengths = self._step(batch, rows)
                last_pass += statistics / settings.minibatches
                norms += torch.cat([lengths.norm()[None], lengths]) / settings.minibatches
            sums += last_pass
            passes += 1
            if settings.lr_schedule == "adaptive" and _kl(last_pass) > TOO_FAR * settings.target_kl:
                break
        if settings.lr_schedule == "adaptive":
            self._adapt(_kl(last_pass))
        means = (sums / passes).tolist()
        of_all, of_actor, of_critic, _ = (norms / passes).tolist()
        return {
            **{f"ppo/{name}": mean for name, mean in zip(STATISTICS, means, strict=True)},
            **dict(zip(("ppo/explained_variance", "ppo/explained_bonus"), explained, strict=False)),
            "ppo/grad_norm": of_all,  # as all of these, a mean over minibatches: before the clip
            "ppo/critic_share": of_critic / max(of_actor + of_critic, 1e-12),
            "ppo/lr": self.lr,
            "ppo/epochs": float(passes),
            **self.distribution.metrics(),
        }

    def _adapt(self, approx_kl: float) -> None:
        """Moves the rate so that the next update's last pass is about ``target_kl`` away.

        It does not rise above where it began: a policy that has solved its task, and is sure of it,
        moves no more whatever the rate, and the first noise at a large one destroys it.
        """
        if approx_kl > 2 * self.settings.target_kl:
            self.lr = max(min(LR_LEAST, self.settings.lr), self.lr / LR_STEP)
        elif approx_kl < self.settings.target_kl / 2:
            self.lr = min(self.settings.lr, self.lr * LR_STEP)

    def _step(self, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
        """A step on some rows, as many in each process: statistics, and lengths of gradients."""
        # Sums over chunks in their order: bit for bit the same on any number of threads.
        chunks = pieces(rows, self.encoder.chunk)
        parts = in_order(lambda chunk: self._gradients(batch.rows(chunk), 1 / len(rows)), chunks)
        total, statistics = parts[0]
        for part, more in parts[1:]:
            total.add_(part)
            statistics.add_(more)
        both = processes.mean(torch.cat([total, statistics]))
        total, statistics = torch.split(both, [len(total), len(statistics)])
        groups = torch.split(total, self._group_sizes)  # views: of actor, critic and encoder
        norms = torch.stack([torch.linalg.vector_norm(group) for group in groups])
        if not bool(norms.isfinite().all() & statistics.isfinite().all()):
            named = dict(zip(STATISTICS, statistics.tolist(), strict=True))
            raise NotFiniteError(
                f"PPO's loss or its gradient is not finite: {named}, gradient's lengths "
                f"{norms.tolist()}. The weights are those before this step.",
                batch.rows(rows),
            )
        lengths = norms if self.settings.separate_clips else norms.norm().expand_as(norms)
        for group, length in zip(groups, lengths.tolist(), strict=True):
            if length > self.settings.grad_norm:
                group.mul_(self.settings.grad_norm / length)
        parameters = self._parameters.values()
        gradients = torch.split(total, [p.numel() for p in parameters])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter)
        of_policy, of_critic = self.optimizer.param_groups
        of_policy["lr"] = self.lr
        # A rate that holds the policy back is none of the critic's business.
        of_critic["lr"] = self.settings.lr if self.settings.lr_schedule == "adaptive" else self.lr
        self.optimizer.step()
        self.distribution.keep_floor()
        return statistics, norms

    def _gradients(self, batch: Batch, share: float) -> tuple[Tensor, Tensor]:
        """Derivatives of the loss by all parameters, in one row; and statistics of the steps.

        Args:
            batch: The steps.
            share: What each weighs.
        """
        with torch.enable_grad():
            loss, statistics = self.loss(batch)
            found = torch.autograd.grad(loss * share, [*self._parameters.values()])
        return torch.cat([part.flatten() for part in found]), statistics * share

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of some steps, and ``STATISTICS`` of them: sums over the steps."""
        settings = self.settings
        inputs = self.encoder.join(batch.observations, self.encoder.embed(batch.observations))
        outputs = self.actor(inputs)
        log_ratio = self.distribution.log_prob(outputs, batch.actions) - batch.log_probs
        entropy = self.distribution.entropy(outputs).sum()
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        gain = torch.minimum(batch.advantages * ratio, batch.advantages * clipped).sum()

        values = self.critic(inputs)
        errors = (values - batch.returns).square()
        if settings.value_clip is not None:
            moved = (values - batch.values).clamp(-settings.value_clip, settings.value_clip)
            errors = torch.maximum(errors, (batch.values + moved - batch.returns).square())
        error = errors.sum()

        loss = settings.value_coef * error - gain
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * entropy
        with torch.no_grad():
            approx_kl = (ratio - 1 - log_ratio).sum()
            clip_fraction = (ratio != clipped).sum().to(gain.dtype)
            return loss, torch.stack([-gain, error, approx_kl, clip_fraction, entropy])

    def _network(self, outputs: int, last_gain: float) -> nn.Sequential:
        return mlp(
            (self.encoder.width, *self.settings.hidden, outputs),
            activation=ACTIVATIONS[self.settings.activation],
            gain=math.sqrt(2),
            last_gain=last_gain,
        )

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer and its rate, statistics of observations and returns, generator."""
        return {
            "network": {name: v.clone() for name, v in self.network.state_dict().items()},
            "optimizer": optimizer_state(self.optimizer, self._parameters),
            "lr": self.lr,
            "normaliser": self.encoder.normaliser.state_dict(),
            "return_scale": self.return_scale.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        require_same(self.network.state_dict(), state["network"], "this PPO")
        self.return_scale.load_state_dict(state["return_scale"])
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizer, self._parameters, state["optimizer"])
        self.lr = float(state["lr"])
        self.encoder.normaliser.load_state_dict(state["normaliser"])
        load_generator(self.generator, state["generator"])


def _kl(statistics: Tensor) -> float:
    return float(statistics[STATISTICS.index("approx_kl")])
