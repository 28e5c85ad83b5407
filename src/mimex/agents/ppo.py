"""Proximal policy optimization (PPO, Schulman et al. 2017), the paper's on-policy agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from mimex.agents.actions import ActionAdapter, distribution_for
from mimex.agents.encoders import Encoder, ObsAdapter, make_encoder
from mimex.agents.errors import NotFiniteError
from mimex.agents.factory import seed_for
from mimex.agents.on_policy import LoopSettings, OnPolicyAgent
from mimex.agents.returns import Batch, ReturnScale, explained_variance, gae, normalize_advantages
from mimex.bonus.scale import Rewards
from mimex.data.checks import require_choice, require_range
from mimex.data.rollout import ObsDict, Rollout
from mimex.nn import processes
from mimex.nn.networks import mlp
from mimex.nn.parallel import chunk_slices, parallel_map, summed_gradients
from mimex.nn.state import load_generator, load_optimizer, optimizer_state, require_same
from mimex.types import Metrics

if TYPE_CHECKING:
    from mimex.config import TrainConfig

Activation = Literal["selu", "elu", "tanh", "relu"]
LearningRateSchedule = Literal["adaptive", "cosine", "constant"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "selu": partial(nn.SELU, inplace=True),
    "elu": partial(nn.ELU, inplace=True),
    "tanh": nn.Tanh,
    "relu": partial(nn.ReLU, inplace=True),
}


@dataclass(frozen=True)
class PPOSettings:
    """Settings of PPO; the defaults are the published ones (MVP, Xiao et al. 2022)."""

    lr: float = 1e-3
    """Initial and maximum learning rate of Adam. With an adaptive schedule the critic keeps it."""
    lr_schedule: LearningRateSchedule = "cosine"
    """"cosine" anneals the learning rate to 0 over the run; "adaptive" raises it when an update's
    KL divergence is below half of target-kl and lowers it above twice target-kl; "constant" keeps
    it."""
    target_kl: float = 0.016
    """Target KL divergence of the adaptive schedule."""
    adam_eps: float = 1e-8
    """Epsilon of Adam. With a small one, gradient noise keeps moving a nearly deterministic policy
    at the full learning rate."""
    epochs: int = 10
    """Epochs per rollout."""
    minibatches: int = 4
    """Minibatches per epoch."""
    shuffle: bool = False
    """Shuffle the rollout before splitting it into minibatches; by default they are contiguous in
    time, as published."""
    clip: float = 0.1
    """PPO clip range (epsilon)."""
    value_coef: float = 2.0
    """Weight of the value loss."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    discount: float = 0.99
    """Discount factor (gamma) of the extrinsic return, or of the combined one."""
    gae_lambda: float = 0.95
    """Lambda of generalized advantage estimation."""
    normalize_values: bool = False
    """Normalize value targets by the running mean and std of the returns (PopArt, van Hasselt et
    al. 2016), so that the scale of rewards does not matter."""
    grad_norm: float = 1.0
    """Maximum gradient norm."""
    clip_per_network: bool = False
    """Clip the gradients of actor, critic and encoder separately, so that a large value loss does
    not slow the actor; by default all together, as published."""
    hidden: tuple[int, ...] = (256, 128, 64)
    """Widths of the hidden layers of actor and critic."""
    activation: Activation = "selu"
    """Activation function."""
    value_gain: float = 1.0
    """Orthogonal gain of the critic's last layer. With a small one, initial values are near 0 and
    the first advantages come from the rewards."""
    normalize_observations: bool = False
    """Normalize observations by their running mean and std. The first rollout is used for these
    statistics only."""
    observation_clip: float = 5.0
    """Clip range of observations; in standard deviations if they are normalized."""
    initial_std: float = 1.0
    """Initial standard deviation of the policy, in units of action."""
    min_std: float = 0.0
    """Lower bound of the policy's standard deviation."""
    two_heads: bool = False
    """Use a second value head for the bonus, with its own discount and a non-episodic return; by
    default both rewards are summed, as published. Advantages of each head are divided by the std of
    its returns, except in rollouts without positive extrinsic reward."""
    intrinsic_discount: float = 0.99
    """Discount factor of the bonus's return, with two heads."""

    def __post_init__(self) -> None:
        positive = "lr", "adam_eps", "target_kl", "clip", "grad_norm", "initial_std", "value_gain"
        require_range("ppo", self, "(0, inf)", *positive, "observation_clip")
        require_range("ppo", self, "[1, inf)", "epochs", "minibatches", "hidden")
        require_range("ppo", self, "[0, inf)", "value_coef", "entropy_coef", "min_std")
        require_range("ppo", self, "[0, 1]", "discount", "gae_lambda")
        require_range("ppo", self, "[0, 1)", "intrinsic_discount")  # its return is not episodic
        require_choice(LearningRateSchedule, lr_schedule=self.lr_schedule)
        require_choice(Activation, activation=self.activation)


CPU = PPOSettings(
    lr_schedule="adaptive",
    epochs=3,
    minibatches=16,
    shuffle=True,
    clip=0.2,
    discount=0.98,
    initial_std=0.5,
    value_coef=1.0,
    value_gain=0.01,
    normalize_observations=True,
    normalize_values=True,
    clip_per_network=True,
)
"""PPO of the cpu preset, for all tasks. With a discount of 0.99, the success rate on KukaPick after
1.5 million steps is 12 % instead of 75 %."""

CPU_PIXELS = replace(CPU, lr=2e-4)
"""PPO of the cpu preset from pixels. With 1e-3, updates are too large and the policy collapses
(dense FrankaReach from 64 px images, after 40,000 steps)."""

SMALL = replace(
    CPU,
    adam_eps=1e-5,
    hidden=(64, 64),
    epochs=10,
    minibatches=4,
    discount=0.99,
    initial_std=1.0,
)
"""PPO of the cpu preset on small tasks (gym/, dmc/). The small networks learn them as well as the
larger ones. There is no entropy bonus: with a weight of 0.01 the std of a Gaussian policy grew, and
a maze that a count bonus otherwise solves was not solved (seed 0). With PyTorch's default epsilon
of Adam, 1e-8, gradient noise destroyed a policy that had solved DeepSea, in one of three seeds;
1e-5 is common for PPO."""

SPARSE = replace(CPU, min_std=0.45)
"""PPO of the cpu preset for sparse reward from state on PixMC-Sparse. The lower bound of the std is
needed because the action penalty is the only frequent signal: without the bound it drives the std
to 0.2 within 0.5M steps, whereas with dense reward the std stays above 0.4."""

PUBLISHED_LRS = {"Franka": 1e-3, "Kuka": 5e-4}
PIXEL_LRS = {"FrankaMove": 1.5e-3, "KukaReach": 1.5e-3}
"""Published learning rates by robot, and exceptions by task from pixels (MVP's
configs/ppo/train/*.yaml)."""

PUBLISHED_ENVS = {"pixels": 512, "state": 256}
"""Published number of parallel environments (MIMEx from pixels, MVP from state)."""

STATE_ENVS, PIXEL_ENVS = 512, 64
"""Parallel environments of the cpu preset on PixMC-Sparse."""

STATISTICS = ("policy_loss", "value_loss", "approx_kl", "clip_fraction", "entropy")

LR_STEP, LR_LEAST = 1.5, 1e-5
"""Factor of each change of an adaptive learning rate, and its lower bound (as in rsl_rl)."""

KL_STOP_FACTOR = 4
"""With an adaptive rate, an update stops once an epoch's KL divergence exceeds ``target_kl`` by
this factor."""


class PPO:
    """Actor and critic with their optimizer, on the device of the encoder.

    Args:
        encoder: Encodes observations.
        actions: Converts actions for the environments.
        settings: The hyperparameters.
        seed: Seed of actions and minibatches. Weights are drawn from PyTorch's global generator.
    """

    def __init__(
        self, encoder: Encoder, actions: ActionAdapter, settings: PPOSettings, seed: int = 0
    ) -> None:
        self.encoder, self.settings, self.actions = encoder, settings, actions
        self.device, self.feature_dim = encoder.device, encoder.feature_dim
        self.action_dim, self.heads = actions.size, 2 if settings.two_heads else 1
        self.lr = settings.lr
        self.actor = self._network(actions.size, last_gain=0.01)
        self.critic = self._network(self.heads, last_gain=settings.value_gain)
        self.return_scale = ReturnScale(
            self.heads, follow=settings.normalize_values, device=self.device
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
        # The KL divergence depends on the policy alone, so the critic keeps its learning rate.
        policy = [*self.actor.parameters(), *self.distribution.parameters()]
        critic = [*self.critic.parameters()]
        trained = [p for p in encoder.parameters() if p.requires_grad]
        self.parameters = [*policy, *critic, *trained]
        self.clip_groups = [group for group in (policy, critic, trained) if group]
        names: dict[Tensor, str] = {p: name for name, p in self.network.named_parameters()}
        self._named = {names[p]: p for p in self.parameters}
        groups = [{"params": [*policy, *trained]}, {"params": critic}]
        self.optimizer = torch.optim.Adam(groups, settings.lr, eps=settings.adam_eps, fused=True)
        self.generator = Generator(self.device).manual_seed(seed)

    @property
    def bonus_discount(self) -> float:
        """Discount factor of the bonus."""
        return self.settings.intrinsic_discount

    @torch.no_grad()
    def act(self, stored: ObsDict, *, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Samples actions ``(B, A)``, with log-probabilities ``(B,)`` and the bonus's features."""
        features, policy = self.encoder.bonus_features(stored), self.distribution
        outputs: Tensor = self.actor(self.encoder.policy_input(stored, features))
        actions = policy.mode(outputs) if deterministic else policy.sample(outputs, self.generator)
        return actions, policy.log_prob(outputs, actions), features

    def policy(
        self, observation: Any, *, deterministic: bool = True, step: int = 0
    ) -> NDArray[Any]:
        """Actions in the environments' format, for a batch of their observations."""
        stored = self.encoder.read(observation)
        return self.actions(self.act(stored, deterministic=deterministic)[0])

    @torch.no_grad()
    def features(self, stored: ObsDict) -> Tensor:
        """The bonus's features of observations, ``(B, D)``."""
        return self.encoder.bonus_features(stored)

    def values(self, stored: ObsDict) -> Tensor:
        """Values ``(B, H)`` of observations."""

        @torch.no_grad()
        def outputs(rows: slice) -> Tensor:
            some = {part: v[rows] for part, v in stored.items()}
            features = self.encoder.bonus_features(some)
            found: Tensor = self.critic(self.encoder.policy_input(some, features))
            return found

        parts = parallel_map(outputs, chunk_slices(len(stored["vector"]), self.encoder.chunk))
        empty = torch.zeros(0, self.heads, device=self.device)
        return self.return_scale.values(torch.cat([empty, *parts]))

    def learn(
        self, rollout: Rollout, rewards: Rewards, *, beta: float = 1.0, progress: float = 0.0
    ) -> Metrics:
        """Learns from a rollout.

        Args:
            rollout: The newest steps of all environments.
            rewards: Their rewards, with the bonus.
            beta: Weight of the bonus in ``rewards``, and of its value head's advantages.
            progress: Fraction of the run so far, for the learning rate's schedule.
        """
        return self.update(
            self.batch(rollout, rewards, beta),
            progress,
            (1.0, beta)[: self.heads],
            per_head=self.heads == 1 or _any_reward(rewards.extrinsic),
            restarted=rollout.restarted.flatten(),
        )

    def batch(self, rollout: Rollout, rewards: Rewards, beta: float) -> Batch:
        """Values, advantages and returns of a rollout, flattened to single steps.

        With one value head, both rewards are one stream, which ends with its episode. With two,
        the bonus without its weight beta has its own return, which continues across episodes; the
        survival bonus is part of the extrinsic return: in a non-episodic one it has no effect.
        """
        settings, ended = self.settings, rollout.ended
        flat = {part: values.flatten(0, 1) for part, values in rollout.observations.items()}
        values = self.values(flat).view(rollout.steps + 1, rollout.num_envs, self.heads)
        now, after = values[:-1], values[1:].clone()
        across_episodes = after[..., -1].clone()
        # On truncation, bootstrap from V(final_obs), not from the next episode's first.
        after[ended] = self.values(rollout.finals())
        never = torch.zeros_like(ended)
        results = [
            gae(
                rewards.extrinsic + rewards.survival if self.heads == 2 else rewards.total,
                now[..., 0],
                after[..., 0],
                terminated=rollout.terminated,
                ended=ended,
                discount=settings.discount,
                gae_lambda=settings.gae_lambda,
            )
        ]
        if self.heads == 2:
            novelty = rewards.intrinsic - rewards.survival
            results.append(
                gae(
                    novelty / beta if beta else torch.zeros_like(novelty),
                    now[..., 1],
                    across_episodes,
                    terminated=never,
                    ended=never,
                    discount=settings.intrinsic_discount,
                    gae_lambda=settings.gae_lambda,
                )
            )
        advantages, returns = (
            torch.stack(streams, dim=-1) for streams in zip(*results, strict=True)
        )
        return Batch(
            {part: values[:-1].flatten(0, 1) for part, values in rollout.observations.items()},
            rollout.actions.flatten(0, 1),
            rollout.log_probs.flatten(),
            advantages.flatten(0, 1),
            now.flatten(0, 1),
            returns.flatten(0, 1),
        )

    def update(
        self,
        batch: Batch,
        progress: float = 0.0,
        weights: Sequence[float] = (),
        per_head: bool = True,
        restarted: Tensor | None = None,
    ) -> Metrics:
        """One update: several epochs of minibatches over a rollout.

        Args:
            batch: The rollout; advantages, values and returns in units of reward.
            progress: Fraction of the run so far, for the learning rate's schedule.
            weights: Weight of each head's advantages; all 1 by default.
            per_head: Divide each head's advantages by the std of its returns.
            restarted: ``(B,)`` bool: steps of restarted episodes, whose advantages are normalized
                separately.
        """
        settings, size = self.settings, len(batch.actions)
        if size < settings.minibatches:
            raise ValueError(
                f"ppo.minibatches is {settings.minibatches}, but the rollout has only {size} "
                "steps: use fewer minibatches or more environments."
            )
        returns = processes.all_gather(batch.returns)
        if not bool(returns.isfinite().all()):
            raise NotFiniteError("The returns are not finite. Nothing was changed.", batch)
        explained = explained_variance(processes.all_gather(batch.values), returns)
        if settings.lr_schedule == "cosine":
            self.lr = settings.lr * 0.5 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
        last = self.critic[-1]
        assert isinstance(last, nn.Linear)
        self.return_scale.update(returns, last)
        advantages = self.return_scale.combined(batch.advantages, weights, per_head=per_head)
        batch = batch._replace(
            advantages=normalize_advantages(advantages, restarted),
            returns=self.return_scale.targets(batch.returns),
        )
        adaptive = settings.lr_schedule == "adaptive"
        policy_group, critic_group = self.optimizer.param_groups
        policy_group["lr"], critic_group["lr"] = self.lr, settings.lr if adaptive else self.lr
        epochs: list[Tensor] = []  # means over minibatches of STATISTICS and gradient norms
        for _ in range(settings.epochs):
            order = torch.arange(size, device=self.device)
            if settings.shuffle:
                order = torch.randperm(size, generator=self.generator, device=self.device)
            minibatches = order.tensor_split(settings.minibatches)
            epochs.append(
                torch.stack([self._step(batch.rows(rows)) for rows in minibatches]).mean(0)
            )
            if adaptive and _kl(epochs[-1]) > KL_STOP_FACTOR * settings.target_kl:
                break
        if adaptive:
            self._adapt(_kl(epochs[-1]))
        *means, grad_norm, actor_norm, critic_norm = torch.stack(epochs).mean(0).tolist()
        return {
            **{f"ppo/{name}": mean for name, mean in zip(STATISTICS, means, strict=True)},
            **dict(zip(("ppo/explained_variance", "ppo/explained_bonus"), explained, strict=False)),
            "ppo/grad_norm": grad_norm,  # before clipping
            "ppo/critic_share": critic_norm / max(actor_norm + critic_norm, 1e-12),
            "ppo/lr": self.lr,
            "ppo/epochs": float(len(epochs)),
            **self.distribution.metrics(),
        }

    def _adapt(self, approx_kl: float) -> None:
        """Adapts the learning rate so that the KL divergence of the next update is ``target_kl``.

        It never exceeds its initial value: a policy that has solved its task has a KL divergence
        near 0 at any learning rate, and gradient noise at a large one would destroy it.
        """
        if approx_kl > 2 * self.settings.target_kl:
            self.lr = max(min(LR_LEAST, self.settings.lr), self.lr / LR_STEP)
        elif approx_kl < self.settings.target_kl / 2:
            self.lr = min(self.settings.lr, self.lr * LR_STEP)

    def _step(self, batch: Batch) -> Tensor:
        """One optimizer step on a minibatch, of the same size in each process.

        Returns:
            ``STATISTICS`` of the minibatch, and the gradient norms of actor and critic before
            clipping.
        """
        size = len(batch.actions)

        def loss(rows: slice) -> tuple[Tensor, Tensor]:
            total, statistics = self.loss(batch.rows(rows))
            return total / size, statistics / size

        found, gradients = summed_gradients(
            loss, chunk_slices(size, self.encoder.chunk), self.parameters
        )
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        statistics = processes.average_gradients(self.parameters, torch.stack(found).sum(0))
        norms = [
            get_total_norm([p.grad for p in group if p.grad is not None])
            for group in self.clip_groups
        ]
        total = torch.stack(norms).norm()
        if not bool((statistics.sum() + total).isfinite()):
            named = dict(zip(STATISTICS, statistics.tolist(), strict=True))
            raise NotFiniteError(
                f"PPO's loss or its gradient is not finite: {named}, gradient norm {total:.3g}. "
                "The weights are unchanged.",
                batch,
            )
        for group, norm in zip(self.clip_groups, norms, strict=True):
            before = norm if self.settings.clip_per_network else total
            clip_grads_with_norm_(group, self.settings.grad_norm, before)
        self.optimizer.step()
        self.distribution.keep_floor()
        return torch.cat([statistics, total[None], *(norm[None] for norm in norms[:2])])

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss and ``STATISTICS``, summed over the steps of a batch."""
        settings = self.settings
        inputs = self.encoder.policy_input(
            batch.observations, self.encoder.bonus_features(batch.observations)
        )
        outputs = self.actor(inputs)
        log_ratio = self.distribution.log_prob(outputs, batch.actions) - batch.log_probs
        entropy = self.distribution.entropy(outputs).sum()
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        surrogate = torch.minimum(batch.advantages * ratio, batch.advantages * clipped).sum()

        values = self.critic(inputs)
        value_loss = (values - batch.returns).square().sum()

        loss = settings.value_coef * value_loss - surrogate
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * entropy
        with torch.no_grad():
            approx_kl = (ratio - 1 - log_ratio).sum()
            clip_fraction = (ratio != clipped).sum().to(surrogate.dtype)
            return loss, torch.stack([-surrogate, value_loss, approx_kl, clip_fraction, entropy])

    def _network(self, outputs: int, last_gain: float) -> nn.Sequential:
        return mlp(
            (self.encoder.width, *self.settings.hidden, outputs),
            activation=ACTIVATIONS[self.settings.activation],
            gain=math.sqrt(2),
            last_gain=last_gain,
        )

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, learning rate, running statistics and generator."""
        return {
            "network": {name: v.clone() for name, v in self.network.state_dict().items()},
            "optimizer": optimizer_state(self.optimizer, self._named),
            "lr": self.lr,
            "normalizer": self.encoder.normalizer.state_dict(),
            "return_scale": self.return_scale.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``; if it does not fit, nothing changes."""
        require_same(self.network.state_dict(), state["network"], "this PPO")
        self.return_scale.load_state_dict(state["return_scale"])
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizer, self._named, state["optimizer"])
        self.lr = float(state["lr"])
        self.encoder.normalizer.load_state_dict(state["normalizer"])
        load_generator(self.generator, state["generator"])


def _kl(statistics: Tensor) -> float:
    return float(statistics[STATISTICS.index("approx_kl")])


def _any_reward(rewards: Tensor) -> bool:
    """Whether any process's rollout has a positive extrinsic reward.

    Without one, costs are the only extrinsic signal, and they are not divided by their std: they
    would then outweigh the bonus, and the policy's std would collapse.
    """
    return float(processes.mean((rewards > 0).any().double())) > 0


class PPOAgent(OnPolicyAgent):
    """PPO with its rollout and its bonus."""

    sections: ClassVar[Mapping[str, type[Any]]] = {"ppo": PPOSettings, **OnPolicyAgent.sections}
    shown: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "ppo": ("lr", "epochs", "minibatches", "clip", "entropy_coef", "discount"),
        "loop": ("rollout_steps",),
    }
    algorithm: PPO

    @classmethod
    def small(cls, *, pixels: bool) -> dict[str, Any]:
        """Rollouts of 2,048 steps, and small networks."""
        return {
            "envs": 16,
            "ppo": replace(SMALL, lr=CPU_PIXELS.lr) if pixels else SMALL,
            "loop": LoopSettings(rollout_steps=128),
            "eval": {"every": 50_000, "episodes": 20},
            "track": {"checkpoint_every": 50_000},
        }

    @classmethod
    def make_algorithm(cls, config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> PPO:
        """PPO with new weights."""
        settings: PPOSettings = config.ppo
        reader = ObsAdapter(env.single_observation_space, config.device_name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(config, "weights"))
            encoder = make_encoder(
                config.vision,
                reader,
                normalize=settings.normalize_observations,
                clip=settings.observation_clip,
            )
            actions = ActionAdapter(env.single_action_space)
            return PPO(encoder, actions, settings, seed_for(config, "actions"))

    @classmethod
    def annealed(cls, config: TrainConfig) -> str | None:
        """The schedule, if it is a cosine."""
        return "--ppo.lr-schedule cosine" if config.ppo.lr_schedule == "cosine" else None
