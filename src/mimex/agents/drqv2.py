"""DrQ-v2: DDPG with twin critics on randomly shifted frames (Yarats et al., 2021).

Batches go through the networks in small pieces, on all worker threads (``mimex.use_workers``):
on a CPU, fresh memory for large temporaries costs more than arithmetic. Gradients of pieces are
added up in their order, so results do not depend on the number of threads.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from mimex.agents.actions import ActionWriter
from mimex.agents.drqv2_networks import EDGE, Actor, Critic, Encoded, InputEncoder, noisy
from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.agents.encoders import ObservationReader
from mimex.agents.errors import NotFiniteError
from mimex.bonus.state import load_optimizer, optimizer_state, require_same
from mimex.data.transitions import Observations, Transitions
from mimex.nn.generators import load_generator
from mimex.nn.parallel import cuts, in_order, summed
from mimex.nn.pixels import draw_shifts
from mimex.types import Metrics

IMAGES_AT_ONCE = 16
"""Stacks of frames that go through the encoder at once on a thread."""

ROWS_AT_ONCE = 128
"""Features of so many stacks go through actor and critic at once on a thread."""

VECTORS_AT_ONCE = 256
"""Vectors that go through all networks at once on a thread."""


class DrQv2:
    """The agent, with all it needs to go on after a restart.

    Attributes:
        shape: Of what it sees: ``(stack * C, H, W)`` uint8 frames, or ``(D,)`` numbers.

    Args:
        reader: Of the observations: pictures, numbers or both; where it reads to, it works.
        actions: What they are to the environments: numbers.
        settings: Of the algorithm.
        seed: Of the initial weights, the noise and the shifts.
    """

    def __init__(
        self,
        reader: ObservationReader,
        actions: ActionWriter,
        settings: DrQv2Settings,
        seed: int = 0,
    ) -> None:
        if actions.discrete:
            raise ValueError(
                "the actions are discrete, but drqv2 needs a box of real numbers: use --agent ppo"
            )
        self.reader, self.actions, self.settings = reader, actions, settings
        self.device, self.action_dim = reader.device, actions.size
        self.pixels = reader.image is not None
        self._encoded_at_once = IMAGES_AT_ONCE if self.pixels else VECTORS_AT_ONCE
        self._at_once = ROWS_AT_ONCE if self.pixels else VECTORS_AT_ONCE
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
        self.network = nn.ModuleDict({"encoder": self.encoder, "actor": self.actor})
        self.network.update({"critic": self.critic, "target": self.target})
        named = dict(self.network.named_parameters())
        self._actor = {n: p for n, p in named.items() if n.startswith("actor.")}
        self._critic = {n: p for n, p in named.items() if n.startswith(("encoder.", "critic."))}
        self._encoder = list(self.encoder.parameters())
        self.optimizers = {
            "actor": torch.optim.Adam(self._actor.values(), settings.lr, fused=True),
            "critic": torch.optim.Adam(self._critic.values(), settings.lr, fused=True),
        }
        # A child of the seed: with the seed itself the noise would be the weights' random numbers.
        (of_noise,) = np.random.SeedSequence(seed).spawn(1)
        self.generator = Generator(self.device).manual_seed(int(of_noise.generate_state(1)[0]))

    def read(self, observation: Any) -> Tensor:
        """A batch of observations as the environments gave it, ``(B, *shape)`` on the device."""
        return self.encoder.pack(self.reader(observation))

    def policy(
        self, observation: Any, *, deterministic: bool = True, step: int = 0
    ) -> NDArray[Any]:
        """Actions, as the environments take them, for a batch of their observations."""
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
        """What the bonus sees of observations ``(B, *shape)``, unshifted: ``(B, feature_dim)``."""
        return self._bonus_features(self.encoder(observations))

    def encode(self, batch: Transitions) -> Encoded:
        """Runs the encoder on a batch's observations and on its windows.

        The observation of a transition and all of its window are shifted alike: the picture does
        not jump within a window.
        """
        size = len(batch.actions)
        shifts = self._draw_shifts(size, batch.run)
        found = self._encoded(batch.observations, shifts, torch.enable_grad)
        if batch.windows is None:
            return Encoded(found, None)
        see = self._bonus_features
        seen = in_order(see, found)
        shifts = None if shifts is None else shifts[batch.windows.owners]
        seen += self._encoded(batch.windows.others, shifts, torch.no_grad, see)
        features = torch.cat(seen)[batch.windows.places]  # (B, L, D)
        features[~batch.windows.valid] = 0.0
        return Encoded(found, features)

    def _encoded(
        self,
        observations: Observations,
        shifts: Tensor | None,
        mode: Callable[[], AbstractContextManager[Any]],
        then: Callable[[Tensor], Tensor] | None = None,
    ) -> list[Tensor]:
        """What the encoder, and then another function, make of observations, piece by piece."""

        def encode(rows: slice) -> Tensor:
            with mode():
                seen = observations[rows]
                if shifts is not None:
                    seen = self.encoder.shifted(seen, shifts[rows])
                seen = self.encoder(seen)
                return seen if then is None else then(seen)

        return in_order(encode, cuts(len(observations), self._encoded_at_once))

    def _blocks(self, pieces: list[Tensor]) -> list[Tensor]:
        """Pieces of the encoder's size as blocks of the heads' size."""
        each = self._at_once // self._encoded_at_once
        return in_order(torch.cat, [pieces[i : i + each] for i in range(0, len(pieces), each)])

    def update(
        self,
        batch: Transitions,
        step: int,
        rewards: Tensor | None = None,
        encoded: Encoded | None = None,
    ) -> Metrics:
        """One step of learning of critic, encoder and actor.

        Args:
            batch: What to learn from.
            step: Agent steps so far, for the noise.
            rewards: ``(B,)`` in place of the batch's, with a bonus.
            encoded: What ``encode`` gave for this batch, if it was called.
        """
        pieces = (encoded or self.encode(batch)).pieces
        rewards = batch.rewards if rewards is None else rewards
        std = self.settings.std(step)
        blocks = self._blocks([piece.detach() for piece in pieces])
        metrics = self._update_critic(batch, pieces, blocks, rewards, std)
        metrics |= self._update_actor(batch, blocks, std)
        with torch.no_grad():
            slow, fast = tuple(self.target.parameters()), tuple(self.critic.parameters())
            torch._foreach_lerp_(slow, fast, self.settings.tau)
        return metrics | {"drqv2/std": std, "drqv2/reward": float(rewards.mean())}

    def _update_critic(
        self,
        batch: Transitions,
        pieces: list[Tensor],
        blocks: list[Tensor],
        rewards: Tensor,
        std: float,
    ) -> Metrics:
        size = len(batch.actions)
        noise, shifts = self._draw_noise(size, std), self._draw_shifts(size)
        after = self._blocks(self._encoded(batch.next_observations, shifts, torch.no_grad))
        parameters = tuple(self.critic.parameters())

        def learn(block: tuple[slice, Tensor, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
            rows, seen, then = block
            with torch.no_grad():
                actions = noisy(self.actor(then), noise[rows])
                worse = self.target(then, actions).amin(0)
                target = torch.addcmul(rewards[rows], batch.discounts[rows], worse)
            with torch.enable_grad():
                seen = seen.requires_grad_(bool(self._encoder))
                values = self.critic(seen, batch.actions[rows])  # (2, b)
                loss = (values - target).square().sum() / size
                wanted = (*parameters, seen) if self._encoder else parameters
                gradients = torch.autograd.grad(loss, wanted)
            return gradients, torch.stack([loss.detach(), values.detach()[0].sum() / size])

        parts = in_order(learn, list(zip(cuts(size, self._at_once), blocks, after, strict=True)))
        gradients = summed([part[0][: len(parameters)] for part in parts])
        loss, value = torch.stack([part[1] for part in parts]).sum(0).tolist()
        if self._encoder:
            back = [part[0][-1] for part in parts]  # (b, F) of the features
            gradients = self._through_encoder(pieces, back) + gradients
        self._step("critic", batch, gradients, loss)
        return {"drqv2/critic_loss": loss, "drqv2/value": value}

    def _through_encoder(self, pieces: list[Tensor], back: list[Tensor]) -> list[Tensor]:
        """Gradients of the encoder's parameters, from those of the blocks' features."""
        parameters = tuple(self._encoder)

        def gradients(piece: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            return torch.autograd.grad(piece[0], parameters, piece[1])

        split = [part for block in back for part in torch.split(block, IMAGES_AT_ONCE)]
        return summed(in_order(gradients, list(zip(pieces, split, strict=True))))

    def _update_actor(self, batch: Transitions, blocks: list[Tensor], std: float) -> Metrics:
        size = len(batch.actions)
        noise = self._draw_noise(size, std)
        parameters = tuple(self._actor.values())

        def learn(block: tuple[slice, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
            rows, seen = block
            with torch.enable_grad():
                actions = noisy(self.actor(seen), noise[rows])
                loss = -self.critic(seen, actions).amin(0).sum() / size
                return torch.autograd.grad(loss, parameters), loss.detach()

        parts = in_order(learn, list(zip(cuts(size, self._at_once), blocks, strict=True)))
        loss = float(torch.stack([part[1] for part in parts]).sum())
        self._step("actor", batch, summed([part[0] for part in parts]), loss)
        return {"drqv2/actor_loss": loss}

    def _step(
        self, name: Literal["actor", "critic"], batch: Transitions, total: list[Tensor], loss: float
    ) -> None:
        """One optimizer step."""
        if not math.isfinite(loss):
            raise NotFiniteError(
                f"the loss of DrQ-v2's {name} is {loss}. Its weights are those before this step.",
                batch,
            )
        parameters = self._actor if name == "actor" else self._critic
        for parameter, gradient in zip(parameters.values(), total, strict=True):
            parameter.grad = gradient.contiguous()  # fused Adam pairs numbers by their place
        self.optimizers[name].step()

    @torch.no_grad()
    def _bonus_features(self, encoded: Tensor) -> Tensor:
        if self.settings.features == "encoder":
            return encoded.detach()
        seen: Tensor = self.critic.trunk(encoded)
        return seen

    def _draw_shifts(self, size: int, run: int = 1) -> Tensor | None:
        """Shifts ``(size, 2)``, the same ones for each run of rows; none for vectors."""
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
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        require_same(self.network.state_dict(), state["network"], "this DrQ-v2")
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizers["actor"], self._actor, state["actor"])
        load_optimizer(self.optimizers["critic"], self._critic, state["critic"])
        load_generator(self.generator, state["generator"])
