import torch

import mimex
from mimex.types import Window


def test_only_masked_features_of_the_newest_step_are_scored():
    bonus = mimex.PseudoCount(4, 2, mask_ratio=0.5)
    features = torch.randn(16, 2, 4, generator=torch.Generator().manual_seed(0))
    rewards = bonus.reward(Window(features))
    newest = torch.zeros(16, 2, dtype=torch.bool)
    newest[:, 1] = True
    hidden = bonus.mask.draw(newest, 1, torch.Generator().manual_seed(0))[0, :, 1]
    assert (hidden.sum(1) == 2).all()
    state = features[:, 1]
    with torch.no_grad():
        seen = torch.where(hidden, 0.0, state)
        predicted = bonus.network(torch.cat([seen, hidden.float()], 1))
    expected = ((predicted - state) ** 2 * hidden).sum(1) / 2
    assert torch.allclose(rewards, expected, atol=1e-6)
    earlier = features.clone()
    earlier[:, 0] += 1.0
    assert torch.equal(bonus.reward(Window(earlier)), rewards)


def test_a_frequent_state_has_a_smaller_reward_than_a_rare_one():
    bonus = mimex.PseudoCount(6, masks=4)
    g = torch.Generator().manual_seed(0)
    frequent, rare = torch.randn(6, generator=g), torch.randn(6, generator=g)
    batch = torch.stack([frequent] * 63 + [rare]).unsqueeze(1)
    for _ in range(100):
        bonus.learn(Window(batch))
    rewards = bonus.reward(Window(batch))
    assert float(rewards[-1]) > 2 * float(rewards[:-1].mean())
