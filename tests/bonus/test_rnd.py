import torch

import mimex
from mimex.types import Window


def test_reward_equals_the_formula_of_the_paper():
    rnd = mimex.RND(4)
    states = torch.randn(32, 1, 4, generator=torch.Generator().manual_seed(0))
    target, predictor = rnd.network["target"], rnd.network["predictor"]
    with torch.no_grad():
        expected = ((predictor(states[:, 0]) - target(states[:, 0])) ** 2).mean(1)
    assert torch.allclose(rnd.reward(Window(states)), expected, atol=1e-6)


def test_one_step_of_learning_is_adam_on_the_mean_error():
    rnd, twin = mimex.RND(4, lr=1e-2), mimex.RND(4, lr=1e-2)
    states = torch.randn(32, 1, 4, generator=torch.Generator().manual_seed(0))
    rnd.learn(Window(states))
    optimizer = torch.optim.Adam(twin.network["predictor"].parameters(), lr=1e-2)
    x = states[:, 0]
    ((twin.network["predictor"](x) - twin.network["target"](x)) ** 2).mean().backward()
    optimizer.step()
    for ours, textbook in zip(
        rnd.network["predictor"].parameters(), twin.network["predictor"].parameters(), strict=True
    ):
        assert torch.allclose(ours, textbook, atol=1e-6)


def test_the_target_never_learns():
    rnd = mimex.RND(4)
    before = [p.clone() for p in rnd.network["target"].parameters()]
    rnd.learn(Window(torch.randn(32, 1, 4)))
    after = list(rnd.network["target"].parameters())
    assert all(torch.equal(p, q) for p, q in zip(before, after, strict=True))
    assert not any(p.requires_grad for p in after)


def test_only_the_newest_step_is_scored():
    rnd = mimex.RND(4, length=3)
    features = torch.randn(8, 3, 4)
    changed = features.clone()
    changed[:, :2] += 1.0
    assert torch.equal(rnd.reward(Window(features)), rnd.reward(Window(changed)))


def test_settings_are_used():
    """The released code ignored the settings of baselines."""
    rnd = mimex.RND(4, hidden=(17,), output_dim=5, lr=0.5)
    assert rnd.network["predictor"][0].out_features == 17
    assert rnd.network["target"][-1].out_features == 5
    assert rnd.optimizer.param_groups[0]["lr"] == 0.5
