"""An agent of your own: advantage actor-critic (A2C; Mnih et al., 2016) with any bonus.

python examples/a2c.py gym/CartPole-v1 --bonus mimex --steps 100000

One gradient step for each rollout, on all of its steps. Rollouts, windows, the bonus, evaluation,
checkpoints and resuming are those of ``mimex train``.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium.vector import VectorEnv
from torch import Generator, Tensor, nn

from mimex.agents import AGENTS
from mimex.agents.actions import ActionAdapter, distribution_for
from mimex.agents.encoders import Encoder, ObsAdapter, make_encoder
from mimex.agents.errors import NotFiniteError
from mimex.agents.factory import seed_for
from mimex.agents.on_policy import LoopSettings, OnPolicyAgent
from mimex.agents.returns import Batch, gae, normalize_advantages
from mimex.bonus.scale import Rewards
from mimex.data.rollout import ObsDict, Rollout
from mimex.nn import processes
from mimex.nn.networks import mlp
from mimex.nn.state import load_generator, load_optimizer, optimizer_state, require_same


@dataclass(frozen=True)
class A2CSettings:
    """Settings of A2C."""

    lr: float = 1e-3
    """Learning rate of Adam."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    gae_lambda: float = 0.95
    """Lambda of generalized advantage estimation."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    grad_norm: float = 0.5
    """Maximum gradient norm."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic."""


class A2C:
    """Actor and critic with their optimizer."""

    def __init__(
        self, encoder: Encoder, actions: ActionAdapter, settings: A2CSettings, seed: int
    ) -> None:
        self.encoder, self.actions, self.settings = encoder, actions, settings
        self.device = encoder.device
        widths = (encoder.width, *settings.hidden)
        self.actor = mlp((*widths, actions.size), activation=nn.Tanh, gain=math.sqrt(2))
        self.critic = mlp((*widths, 1), activation=nn.Tanh, gain=math.sqrt(2))
        self.distribution = distribution_for(actions, initial_std=1.0, min_std=0.0)
        self.network = nn.ModuleList([encoder, self.actor, self.critic, self.distribution])
        self.network.to(self.device)
        self.parameters = dict(self.network.named_parameters())
        self.optimizer = torch.optim.Adam(self.parameters.values(), settings.lr)
        self.generator = Generator(self.device).manual_seed(seed)

    @property
    def bonus_discount(self) -> float:
        return self.settings.discount

    def _inputs(self, stored: ObsDict) -> Tensor:
        return self.encoder.policy_input(stored, self.encoder.bonus_features(stored))

    @torch.no_grad()
    def act(self, stored: ObsDict, *, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        features, policy = self.encoder.bonus_features(stored), self.distribution
        outputs = self.actor(self.encoder.policy_input(stored, features))
        actions = policy.mode(outputs) if deterministic else policy.sample(outputs, self.generator)
        return actions, policy.log_prob(outputs, actions), features

    def policy(self, observation: Any, *, deterministic: bool = True, step: int = 0) -> Any:
        stored = self.encoder.read(observation)
        return self.actions(self.act(stored, deterministic=deterministic)[0])

    def learn(
        self, rollout: Rollout, rewards: Rewards, *, beta: float, progress: float
    ) -> dict[str, float]:
        batch = self.batch(rollout, rewards)
        inputs = self._inputs(batch.observations)
        outputs, values = self.actor(inputs), self.critic(inputs)
        log_probs = self.distribution.log_prob(outputs, batch.actions)
        policy_loss = -(log_probs * normalize_advantages(batch.advantages[:, 0])).mean()
        value_loss = (values - batch.returns).square().mean()
        entropy = self.distribution.entropy(outputs).mean()
        loss = policy_loss + self.settings.value_coef * value_loss
        loss = loss - self.settings.entropy_coef * entropy
        if not math.isfinite(loss.item()):
            raise NotFiniteError("A2C's loss is not finite. The weights are unchanged.", batch)
        self.optimizer.zero_grad()
        loss.backward()
        losses = torch.stack([policy_loss, value_loss, entropy]).detach()
        losses = processes.average_gradients([*self.parameters.values()], losses)
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.grad_norm)
        self.optimizer.step()
        names = ("a2c/policy_loss", "a2c/value_loss", "a2c/entropy")
        return {**dict(zip(names, losses.tolist(), strict=True)), "a2c/grad_norm": float(norm)}

    @torch.no_grad()
    def batch(self, rollout: Rollout, rewards: Rewards) -> Batch:
        """Advantages and returns of a rollout; on truncation, bootstraps from V(final_obs)."""
        flat = {part: v.flatten(0, 1) for part, v in rollout.observations.items()}
        values = self.critic(self._inputs(flat)).view(rollout.steps + 1, rollout.num_envs)
        now, after, ended = values[:-1], values[1:].clone(), rollout.ended
        after[ended] = self.critic(self._inputs(rollout.finals())).squeeze(1)
        advantages, returns = gae(
            rewards.total,
            now,
            after,
            terminated=rollout.terminated,
            ended=ended,
            discount=self.settings.discount,
            gae_lambda=self.settings.gae_lambda,
        )
        return Batch(
            {part: v[:-1].flatten(0, 1) for part, v in rollout.observations.items()},
            rollout.actions.flatten(0, 1),
            rollout.log_probs.flatten(),
            *(each.flatten().unsqueeze(1) for each in (advantages, now, returns)),
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": {name: v.clone() for name, v in self.network.state_dict().items()},
            "optimizer": optimizer_state(self.optimizer, self.parameters),
            "normalizer": self.encoder.normalizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_same(self.network.state_dict(), state["network"], "this A2C")
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizer, self.parameters, state["optimizer"])
        self.encoder.normalizer.load_state_dict(state["normalizer"])
        load_generator(self.generator, state["generator"])


class A2CAgent(OnPolicyAgent):
    """A2C with its rollout and its bonus."""

    sections: ClassVar[Mapping[str, type[Any]]] = {"a2c": A2CSettings, **OnPolicyAgent.sections}
    shown: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "a2c": ("lr", "discount", "entropy_coef"),
        "loop": ("rollout_steps",),
    }

    @classmethod
    def small(cls, *, pixels: bool) -> dict[str, Any]:
        return {"envs": 16, "loop": LoopSettings(rollout_steps=16)}

    @classmethod
    def make_algorithm(cls, config: Any, env: VectorEnv[Any, Any, Any]) -> A2C:
        reader = ObsAdapter(env.single_observation_space, config.device_name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(config, "weights"))
            encoder = make_encoder(config.vision, reader, normalize=True, clip=5.0)
            actions = ActionAdapter(env.single_action_space)
            return A2C(encoder, actions, config.a2c, seed_for(config, "actions"))


if __name__ == "__main__":
    AGENTS["a2c"] = "a2c:A2CAgent"  # in the package, this is a line of AGENTS
    from mimex.cli import main

    raise SystemExit(main(["train", *sys.argv[1:], "--agent", "a2c"]))
