"""DrQ-v2 in plain PyTorch, channels first and the whole batch at once: a reference for tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mimex.agents.drqv2 import DrQv2


class PlainDrQv2:
    """The published update, on the networks of one of our agents; Adam is PyTorch's default."""

    def __init__(self, agent: DrQv2) -> None:
        self.settings = agent.settings
        self.encoder, self.actor, self.critic, self.target = (
            agent.encoder,
            agent.actor,
            agent.critic,
            agent.target,
        )
        learned = [*self.encoder.parameters(), *self.critic.parameters()]
        self.of_critic = torch.optim.Adam(learned, self.settings.lr)
        self.of_actor = torch.optim.Adam(self.actor.parameters(), self.settings.lr)

    def encode(self, images: Tensor) -> Tensor:
        return self.encoder.pixels.convolutions(images / 255 - 0.5).permute(0, 2, 3, 1).flatten(1)

    def shift(self, images: Tensor, shifts: Tensor) -> Tensor:
        """The published augmentation: bilinear samples of a grid over padded images."""
        pad, size = self.settings.shift, images.shape[-1]
        images = nn.functional.pad(images.float(), (pad, pad, pad, pad), "replicate")
        padded = size + 2 * pad
        line = torch.linspace(-1 + 1 / padded, 1 - 1 / padded, padded)[:size]
        base = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)  # (H, W, 2)
        offsets = (pad - shifts.flip(1)).float() * 2 / padded  # to the right, then down
        grid = base + offsets[:, None, None]
        return nn.functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)

    def draw(self, size: int) -> Tensor:
        pad = self.settings.shift
        return torch.randint(-pad, pad + 1, (size, 2))

    def noise(self, like: Tensor, std: float) -> Tensor:
        clip = self.settings.std_clip
        return (torch.randn_like(like) * std).clamp(-clip, clip)

    def update(self, batch: tuple[Tensor, ...], step: int) -> None:
        observations, actions, rewards, discounts, next_observations = batch
        std = self.settings.std(step)
        features = self.encode(self.shift(observations, self.draw(len(actions))))
        with torch.no_grad():
            after = self.encode(self.shift(next_observations, self.draw(len(actions))))
            mean = self.actor(after)
            chosen = (mean + self.noise(mean, std)).clamp(-1 + 1e-6, 1 - 1e-6)
            target = rewards + discounts * torch.minimum(*self.target(after, chosen))
        first, second = self.critic(features, actions)
        loss = nn.functional.mse_loss(first, target) + nn.functional.mse_loss(second, target)
        self.of_critic.zero_grad()
        loss.backward()
        self.of_critic.step()
        features = features.detach()
        mean = self.actor(features)
        free = mean + self.noise(mean, std)
        chosen = free - free.detach() + free.detach().clamp(-1 + 1e-6, 1 - 1e-6)
        self.of_actor.zero_grad()
        (-torch.minimum(*self.critic(features, chosen)).mean()).backward()
        self.of_actor.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.copy_(self.settings.tau * fast + (1 - self.settings.tau) * slow)
