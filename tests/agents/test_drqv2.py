import copy

import pytest
import torch
from benchmarks.plain_drqv2 import PlainDrQv2

from mimex.agents.drqv2 import DrQv2
from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.data.replay import ReplayBuffer

SMALL = {"hidden": 32, "trunk": 8, "random_steps": 0}


def filled(pixels, window=0, steps=60, seed=0, **settings):
    """A buffer of short episodes of random numbers."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 40, 40) if pixels else (4,)
    replay = ReplayBuffer(
        200, shape, 2, pixels=pixels, stack=3 if pixels else 1, window=window, **settings
    )

    def observation():
        if pixels:
            return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).numpy()
        return torch.randn(shape, generator=generator).numpy()

    for number in range(steps):
        if number % 15 == 0:
            replay.start(observation())
        action = torch.rand(2, generator=generator) * 2 - 1
        reward = float(torch.randn((), generator=generator))
        replay.add(observation(), action.numpy(), reward, number % 15 == 14)
    return replay


def agent(pixels, seed=0, **settings):
    return DrQv2((9, 40, 40) if pixels else (4,), 2, DrQv2Settings(**SMALL | settings), seed)


def weights(drqv2):
    return torch.cat([p.detach().flatten() for p in drqv2.network.parameters()])


@pytest.mark.parametrize("pixels", [False, True])
def test_an_update_is_that_of_the_plain_arithmetic(pixels):
    """Without noise and shifts all that is left is arithmetic: pieces must add up to the whole.

    Gradient descent in place of Adam, which makes steps of one size of the tiniest differences.
    """
    ours = agent(pixels, shift=0, std_start=1e-12, std_end=1e-12)
    plain = PlainDrQv2(copy.deepcopy(ours))
    for model in (ours, plain):
        learned = [*model.encoder.parameters(), *model.critic.parameters()]
        of_critic = torch.optim.SGD(learned, 0.1)
        of_actor = torch.optim.SGD(model.actor.parameters(), 0.1)
        if model is ours:
            ours.optimizers = {"actor": of_actor, "critic": of_critic}
        else:
            plain.of_actor, plain.of_critic = of_actor, of_critic
    plain.shift = lambda images, shifts: images
    if not pixels:
        plain.encode = lambda vectors: vectors
    replay = filled(pixels, n_step=3)
    for _ in range(3):
        batch = replay.sample(150, torch.Generator().manual_seed(1))
        ours.update(batch, 0)
        plain.update(
            (
                batch.observations[:],
                batch.actions,
                batch.rewards,
                batch.discounts,
                batch.next_observations[:],
            ),
            0,
        )
    for mine, theirs in (
        (ours.encoder, plain.encoder),
        (ours.critic, plain.critic),
        (ours.target, plain.target),
        (ours.actor, plain.actor),
    ):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=5e-5, rtol=1e-3)
