"""DrQ-v2: DDPG with twin critics on randomly shifted frames (Yarats et al., 2021).

Batches are processed in small chunks on all worker threads (``mimex.use_workers``): on a CPU,
allocating large temporaries costs more than arithmetic. Gradients of chunks are summed in order, so
results do not depend on the number of threads.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from mimex.agents.actions import ActionAdapter
from mimex.agents.encoders import IMAGE, VECTOR, ObsAdapter
from mimex.agents.errors import NotFiniteError
from mimex.agents.factory import seed_for
from mimex.agents.off_policy import Encoded, OffPolicyAgent
from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.prediction import MaskedPrediction
from mimex.data.checks import require_range
from mimex.data.replay import Observations, Transitions
from mimex.data.rollout import ObsDict
from mimex.nn.networks import PixelEncoder, draw_shifts, mlp, shift
from mimex.nn.parallel import chunk_slices, parallel_map, summed_gradients
from mimex.nn.state import load_generator, load_optimizer, optimizer_state, require_same
from mimex.types import Metrics

if TYPE_CHECKING:
    from mimex.config import TrainConfig

IMAGES_AT_ONCE = 16
"""Chunk size of the encoder, in stacks of frames."""

ROWS_AT_ONCE = 64
"""Chunk size of actor and critic, from images; at most half a batch, for two threads."""

VECTORS_AT_ONCE = 256
"""Chunk size of all networks, from vectors."""

FeatureKind = Literal["trunk", "encoder"]


@dataclass(frozen=True)
class DrQv2Settings:
    """Settings of DrQ-v2; the defaults are the published ones."""

    lr: float = 1e-4
    """Learning rate of Adam for encoder, actor and critic."""
    batch: int = 256
    """Batch size."""
    n_step: int = 3
    """Steps of n-step returns."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    tau: float = 0.01
    """Target network EMA rate (tau)."""
    update_every: int = 2
    """Agent steps per update."""
    seed_steps: int = 2000
    """Agent steps before the first update (published: 4,000 frames at two frames per step)."""
    random_steps: int = 2000
    """Agent steps with uniformly random actions at the start."""
    std_start: float = 1.0
    """Initial standard deviation of the exploration noise, in units of action."""
    std_end: float = 0.1
    """Final standard deviation of the exploration noise."""
    std_steps: int = 100_000
    """Agent steps over which the noise is annealed (published: 100,000 for easy tasks, 500,000 for
    medium ones, 2,000,000 for hard ones)."""
    std_clip: float = 0.3
    """Clip range of the noise in updates, in units of action."""
    shift: int = 4
    """Maximum random shift of images (pixels)."""
    filters: int = 32
    """Filters of each of the encoder's four convolutions."""
    trunk: int = 50
    """Output features of the trunk of actor and critic."""
    hidden: int = 1024
    """Width of the two hidden layers of actor and critic."""
    features: FeatureKind = "trunk"
    """Features for the bonus: the critic's "trunk", or the "encoder" before it (39,200
    features)."""

    def __post_init__(self) -> None:
        sizes = "batch", "n_step", "update_every", "std_steps", "filters", "trunk", "hidden"
        require_range("drqv2", self, "[1, inf)", *sizes)
        require_range("drqv2", self, "(0, inf)", "lr", "std_start", "std_clip")
        require_range("drqv2", self, "[0, inf)", "seed_steps", "random_steps", "std_end", "shift")
        require_range("drqv2", self, "[0, 1]", "tau")
        require_range("drqv2", self, "[0, 1)", "discount")

    def std(self, step: int) -> float:
        """The standard deviation of the noise at an agent step."""
        progress = min(step / self.std_steps, 1.0)
        return (1 - progress) * self.std_start + progress * self.std_end


PUBLISHED = DrQv2Settings()
"""DrQ-v2 as published."""

MIMEX = DrQv2Settings(batch=1024, n_step=1)
"""The variant of the MIMEx release."""

SMALL_STATE = replace(PUBLISHED, hidden=256, lr=1e-3, features="encoder")
"""DrQ-v2 of the cpu preset, from a low-dimensional state that is also the bonus's input. The
learning rate is larger than the published 1e-4, with which cartpole_swingup learns more slowly
(return after 30,000 frames, seed 0: 247 instead of 717)."""

SMALL_PIXELS = replace(PUBLISHED, batch=64, filters=16, shift=2, hidden=256, lr=3e-4)
"""DrQ-v2 of the small preset, from images of the control suite. On one core, 100,000 frames take 28
minutes with MIMEx and 15 without. On dense cartpole_swingup it is nearly as sample-efficient as the
published size; with a learning rate of 1e-3 it does not learn. Its scores are not comparable with
published ones."""

REPLAY_ENVS = 8
"""Parallel environments of DrQ-v2 on PixMC-Sparse."""

REPLAY_PIXELS = replace(PUBLISHED, std_steps=500_000)
REPLAY_STATE = replace(SMALL_STATE, std_steps=500_000)
"""DrQ-v2 on PixMC-Sparse: the noise schedule is that of DrQ-v2's medium tasks."""

EDGE = 1e-6
"""Margin of actions to the bounds of [-1, 1] (DrQ-v2)."""


class InputEncoder(nn.Module):
    """Encodes images with a CNN, and concatenates the vector unchanged.

    A vector beside an image is packed into additional channels of its bytes, so that the replay
    buffer stores one array per observation.

    Attributes:
        shape: Shape of a packed observation: ``(C, H, W)`` uint8, or ``(D,)``.
        features: Number of output features.

    Args:
        reader: Converts observations.
        filters: Filters of each convolution.
    """

    def __init__(self, reader: ObsAdapter, filters: int) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = (reader.vector,)
        self.features, self.vector, self.depth = reader.vector, reader.vector, 0
        self.pixels = None
        if reader.image is not None:
            self.depth, side = reader.square_image
            extra = math.ceil(4 * self.vector / side**2)  # channels that hold the float32 vector
            self.shape = (self.depth + extra, side, side)
            self.pixels = PixelEncoder(self.depth, side, filters)
            self.features += self.pixels.features

    def pack(self, stored: ObsDict) -> Tensor:
        """Packs observations into one tensor ``(B, *shape)``."""
        if self.pixels is None or not self.vector:
            return stored[VECTOR if self.pixels is None else IMAGE]
        image, (depth, height, width) = stored[IMAGE], self.shape
        extra = torch.zeros(len(image), depth - self.depth, height, width).to(image)
        extra.flatten(1)[:, : 4 * self.vector] = stored[VECTOR].contiguous().view(torch.uint8)
        return torch.cat([image, extra], dim=1)

    def shifted(self, packed: Tensor, shifts: Tensor) -> Tensor:
        """Shifts the images of packed observations by ``shifts`` ``(B, 2)``."""
        images = shift(packed[:, : self.depth], shifts)
        return torch.cat([images, packed[:, self.depth :]], 1) if self.vector else images

    def forward(self, packed: Tensor) -> Tensor:
        """Features ``(B, features)``."""
        if self.pixels is None:
            return packed
        features: Tensor = self.pixels(packed[:, : self.depth])
        if not self.vector:
            return features
        vector = packed[:, self.depth :].flatten(1)[:, : 4 * self.vector].contiguous()
        return torch.cat([features, vector.view(torch.float32)], dim=1)


class Actor(nn.Module):
    """The policy: trunk and MLP; the mean of each action is in (-1, 1)."""

    def __init__(self, features: int, action_dim: int, settings: DrQv2Settings) -> None:
        super().__init__()
        self.trunk = _trunk(features, settings.trunk)
        hidden = (settings.hidden, settings.hidden)
        self.policy = mlp((settings.trunk, *hidden, action_dim), activation=_relu, gain=1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Means ``(B, A)``."""
        mean: Tensor = self.policy(self.trunk(features)).tanh()
        return mean


class Critic(nn.Module):
    """Twin Q-functions: one trunk, two MLPs."""

    def __init__(self, features: int, action_dim: int, settings: DrQv2Settings) -> None:
        super().__init__()
        self.trunk = _trunk(features, settings.trunk)
        widths = (settings.trunk + action_dim, settings.hidden, settings.hidden, 1)
        self.q1 = mlp(widths, activation=_relu, gain=1.0)
        self.q2 = mlp(widths, activation=_relu, gain=1.0)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """Both Q-values ``(2, B)``."""
        inputs = torch.cat([self.trunk(features), actions], dim=1)
        return torch.stack([self.q1(inputs).squeeze(1), self.q2(inputs).squeeze(1)])


def noisy(mean: Tensor, noise: Tensor) -> Tensor:
    """Means plus noise, clipped to [-1, 1] with a straight-through gradient."""
    actions = mean + noise
    return actions + (actions.clamp(-1 + EDGE, 1 - EDGE) - actions).detach()


def _trunk(features: int, width: int) -> nn.Sequential:
    linear = nn.Linear(features, width)
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.LayerNorm(width), nn.Tanh())


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


class DrQv2:
    """Encoder, actor and twin critics with their optimizers, on the device of ``reader``.

    Attributes:
        shape: Shape of an observation: ``(stack * C, H, W)`` uint8 frames, or ``(D,)``.

    Args:
        reader: Converts observations: images, vectors or both.
        actions: Converts actions for the environments; continuous.
        settings: The hyperparameters.
        seed: Seed of the initial weights, the noise and the shifts.
    """

    def __init__(
        self,
        reader: ObsAdapter,
        actions: ActionAdapter,
        settings: DrQv2Settings,
        seed: int = 0,
    ) -> None:
        if actions.discrete:
            raise ValueError(
                "the actions are discrete, but drqv2 needs a continuous Box: use --agent ppo"
            )
        self.reader, self.actions, self.settings = reader, actions, settings
        self.device, self.action_dim = reader.device, actions.size
        self.pixels = reader.image is not None
        self._encoded_at_once = IMAGES_AT_ONCE if self.pixels else VECTORS_AT_ONCE
        fitting = min(ROWS_AT_ONCE, settings.batch // 2) // IMAGES_AT_ONCE * IMAGES_AT_ONCE
        self._at_once = max(fitting, IMAGES_AT_ONCE) if self.pixels else VECTORS_AT_ONCE
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = InputEncoder(reader, settings.filters)
            width = self.encoder.features
            self.actor = Actor(width, actions.size, settings)
            self.critic = Critic(width, actions.size, settings)
        for part in (self.encoder, self.actor, self.critic):
            part.to(self.device)
        self.shape = self.encoder.shape
        self.target = copy.deepcopy(self.critic)
        self.feature_dim = settings.trunk if settings.features == "trunk" else width
        self.discrete_features = reader.discrete and settings.features != "trunk"
        self.network = nn.ModuleDict({"encoder": self.encoder, "actor": self.actor})
        self.network.update({"critic": self.critic, "target": self.target})
        named = dict(self.network.named_parameters())
        self._actor = {n: p for n, p in named.items() if n.startswith("actor.")}
        self._critic = {n: p for n, p in named.items() if n.startswith(("encoder.", "critic."))}
        self.optimizers = {
            "actor": torch.optim.Adam(self._actor.values(), settings.lr, fused=True),
            "critic": torch.optim.Adam(self._critic.values(), settings.lr, fused=True),
        }
        # A child seed: the seed itself would repeat the random stream of the weights.
        (noise_seed,) = np.random.SeedSequence(seed).spawn(1)
        self.generator = Generator(self.device).manual_seed(int(noise_seed.generate_state(1)[0]))

    def read(self, observation: Any) -> Tensor:
        """Converts the environments' observations to one tensor ``(B, *shape)`` on the device."""
        return self.encoder.pack(self.reader(observation))

    def policy(
        self, observation: Any, *, deterministic: bool = True, step: int = 0
    ) -> NDArray[Any]:
        """Actions in the environments' format, for a batch of their observations."""
        return self.actions(self.act(self.read(observation), step, deterministic=deterministic))

    @torch.no_grad()
    def act(self, observations: Tensor, step: int, *, deterministic: bool = False) -> Tensor:
        """Actions ``(B, A)`` for observations ``(B, *shape)`` at an agent step."""
        if step < self.settings.random_steps and not deterministic:
            size = (len(observations), self.action_dim)
            return torch.rand(size, generator=self.generator, device=self.device) * 2 - 1
        mean: Tensor = self.actor(self.encoder(observations))
        if deterministic:
            return mean
        noise = torch.randn(mean.shape, generator=self.generator, device=self.device)
        return (mean + noise * self.settings.std(step)).clamp(-1 + EDGE, 1 - EDGE)

    @torch.no_grad()
    def features(self, observations: Tensor) -> Tensor:
        """The bonus's features ``(B, feature_dim)`` of observations, without random shifts."""
        return self._bonus_features(self.encoder(observations))

    def encode(self, batch: Transitions) -> Encoded:
        """Runs the encoder on a batch's observations and on its windows.

        All observations of a window are shifted by the same offset.
        """
        size = len(batch.actions)
        shifts = self._draw_shifts(size, batch.run)
        blocks = self._encoded(batch.observations, shifts, gradient=True)
        if batch.windows is None:
            return Encoded(blocks, None)
        shifts = None if shifts is None else shifts[batch.windows.owners]
        parts = parallel_map(self._bonus_features, blocks)
        parts += self._encoded(batch.windows.others, shifts, then=self._bonus_features)
        features = torch.cat(parts)[batch.windows.positions]  # (B, L, D)
        features[~batch.windows.valid] = 0.0
        return Encoded(blocks, features)

    def _encoded(
        self,
        observations: Observations,
        shifts: Tensor | None,
        *,
        gradient: bool = False,
        then: Callable[[Tensor], Tensor] = lambda features: features,
    ) -> list[Tensor]:
        """Encodes observations in blocks of rows, each in one thread; applies ``then`` to each.

        One thread also makes the order in which a block's gradients are summed the same for any
        number of threads.
        """

        def encode(block: slice) -> Tensor:
            chunks = []
            for start in range(block.start, block.stop, self._encoded_at_once):
                rows = slice(start, min(start + self._encoded_at_once, block.stop))
                packed = observations[rows]
                if shifts is not None:
                    packed = self.encoder.shifted(packed, shifts[rows])
                with torch.set_grad_enabled(gradient):
                    chunks.append(self.encoder(packed))
            return then(torch.cat(chunks))

        return parallel_map(encode, chunk_slices(len(observations), self._at_once))

    def update(
        self,
        batch: Transitions,
        step: int,
        rewards: Tensor | None = None,
        encoded: Encoded | None = None,
    ) -> Metrics:
        """One update of critic, encoder and actor.

        Args:
            batch: Sampled transitions.
            step: Agent steps so far, for the noise.
            rewards: ``(B,)`` with the bonus; by default the batch's own.
            encoded: Result of ``encode`` for this batch; computed by default.
        """
        blocks = (encoded or self.encode(batch)).blocks
        rewards = batch.rewards if rewards is None else rewards
        std = self.settings.std(step)
        metrics = self._update_critic(batch, blocks, rewards, std)
        metrics |= self._update_actor(batch, [block.detach() for block in blocks], std)
        with torch.no_grad():
            target, critic = tuple(self.target.parameters()), tuple(self.critic.parameters())
            torch._foreach_lerp_(target, critic, self.settings.tau)
        return metrics | {"drqv2/std": std, "drqv2/reward": float(rewards.mean())}

    def _update_critic(
        self, batch: Transitions, blocks: list[Tensor], rewards: Tensor, std: float
    ) -> Metrics:
        """One step of critic and encoder; ``blocks`` are the encoder's outputs with their graph."""
        size = len(batch.actions)
        noise, shifts = self._draw_noise(size, std), self._draw_shifts(size)
        next_blocks = self._encoded(batch.next_observations, shifts)

        def loss(block: tuple[slice, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            rows, features, next_features = block
            with torch.no_grad():
                actions = noisy(self.actor(next_features), noise[rows])
                next_values = self.target(next_features, actions).amin(0)
                target = torch.addcmul(rewards[rows], batch.discounts[rows], next_values)
            values = self.critic(features, batch.actions[rows])  # (2, b)
            error = (values - target).square().sum() / size
            return error, torch.stack([error.detach(), values.detach()[0].sum() / size])

        rows = chunk_slices(size, self._at_once)
        found = self._step("critic", batch, loss, list(zip(rows, blocks, next_blocks, strict=True)))
        return {"drqv2/critic_loss": float(found[0]), "drqv2/value": float(found[1])}

    def _update_actor(self, batch: Transitions, blocks: list[Tensor], std: float) -> Metrics:
        size = len(batch.actions)
        noise = self._draw_noise(size, std)

        def loss(block: tuple[slice, Tensor]) -> tuple[Tensor, Tensor]:
            rows, features = block
            actions = noisy(self.actor(features), noise[rows])
            mean = -self.critic(features, actions).amin(0).sum() / size
            return mean, mean.detach()[None]

        rows = chunk_slices(size, self._at_once)
        found = self._step("actor", batch, loss, list(zip(rows, blocks, strict=True)))
        return {"drqv2/actor_loss": float(found[0])}

    def _step(
        self,
        name: Literal["actor", "critic"],
        batch: Transitions,
        loss: Callable[[Any], tuple[Tensor, Tensor]],
        blocks: list[Any],
    ) -> Tensor:
        """One optimizer step on a loss summed over blocks; returns its statistics, also summed."""
        parameters = [*(self._actor if name == "actor" else self._critic).values()]
        found, gradients = summed_gradients(loss, blocks, parameters)
        statistics = torch.stack(found).sum(0)
        if not math.isfinite(float(statistics[0])):
            raise NotFiniteError(
                f"the loss of DrQ-v2's {name} is {float(statistics[0])}. Its weights are "
                "unchanged.",
                batch,
            )
        for parameter, gradient in zip(parameters, gradients, strict=True):
            # Fused Adam needs the memory layout of the parameter.
            parameter.grad = None if gradient is None else gradient.contiguous()
        self.optimizers[name].step()
        return statistics

    @torch.no_grad()
    def _bonus_features(self, encoded: Tensor) -> Tensor:
        if self.settings.features == "encoder":
            return encoded.detach()
        features: Tensor = self.critic.trunk(encoded)
        return features

    def _draw_shifts(self, size: int, run: int = 1) -> Tensor | None:
        """Random shifts ``(size, 2)``, the same within each run of rows; None for vectors."""
        if not self.pixels or not self.settings.shift:
            return None
        drawn = draw_shifts(-(-size // run), self.settings.shift, self.generator)
        return drawn.repeat_interleave(run, 0)[:size]

    def _draw_noise(self, size: int, std: float) -> Tensor:
        shape = (size, self.action_dim)
        noise = torch.randn(shape, generator=self.generator, device=self.device) * std
        return noise.clamp_(-self.settings.std_clip, self.settings.std_clip)

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizers and generator."""
        return {
            "network": {name: v.clone() for name, v in self.network.state_dict().items()},
            "actor": optimizer_state(self.optimizers["actor"], self._actor),
            "critic": optimizer_state(self.optimizers["critic"], self._critic),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``; if it does not fit, nothing changes."""
        require_same(self.network.state_dict(), state["network"], "this DrQ-v2")
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizers["actor"], self._actor, state["actor"])
        load_optimizer(self.optimizers["critic"], self._critic, state["critic"])
        load_generator(self.generator, state["generator"])


def replay_bonuses(
    published: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Settings of the bonuses for transitions of a replay buffer, by bonus.

    Args:
        published: The published settings, for image features, which are not normalized. By default
            the library's settings with normalized inputs, because the buffer stores raw
            observations.
    """
    learning = [name for name in BONUSES if issubclass(bonus_class(name), MaskedPrediction)]
    if published is None:
        return {name: {"normalize": True} for name in learning}
    return {name: {"normalize": False, **published.get(name, {})} for name in learning}


class DrQv2Agent(OffPolicyAgent):
    """DrQ-v2 with its replay buffer and its bonus."""

    sections: ClassVar[Mapping[str, type[Any]]] = {
        "drqv2": DrQv2Settings,
        **OffPolicyAgent.sections,
    }
    shown: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "drqv2": ("lr", "batch", "n_step", "discount", "std_steps", "hidden"),
    }
    algorithm: DrQv2

    @classmethod
    def small(cls, *, pixels: bool) -> dict[str, Any]:
        """One environment; from pixels, DrQ-v2 as published."""
        return {
            **replay_bonuses(),
            "envs": 1,
            "drqv2": PUBLISHED if pixels else SMALL_STATE,
            "eval": {"every": 10_000, "episodes": 10},  # as published
            "track": {"checkpoint_every": 50_000},
        }

    @classmethod
    def make_algorithm(cls, config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> DrQv2:
        """DrQ-v2 with new weights."""
        reader = ObsAdapter(env.single_observation_space, config.device_name)
        actions = ActionAdapter(env.single_action_space)
        return DrQv2(reader, actions, config.drqv2, seed_for(config, "weights"))
