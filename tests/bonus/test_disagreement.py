import numpy as np
import pytest
import torch

import mimex
from mimex.bonus.disagreement import BootstrapMask
from mimex.types import Window


def transitions(batch=64, seed=0, noise=0.0):
    """s' = s + a, and unpredictable noise, with the action stored with s'."""
    g = torch.Generator().manual_seed(seed)
    states, actions = torch.randn(batch, 3, generator=g), torch.randn(batch, 3, generator=g)
    after = states + actions + noise * torch.randn(batch, 3, generator=g)
    return Window(
        torch.stack([states, after], 1),
        actions=torch.stack([torch.full_like(actions, 9.0), actions], 1),
    )


def test_reward_is_the_variance_over_the_models_averaged_over_features():
    bonus, window = mimex.Disagreement(3, 3, models=4), transitions()
    inputs = np.concatenate([window.features[:, 0], window.actions[:, 1]], axis=1)
    predictions = []
    for model in bonus.ensemble:
        (w1, b1), (w2, b2) = (
            (layer.weight.detach().numpy(), layer.bias.detach().numpy())
            for layer in (model[0], model[2])
        )
        predictions.append(np.maximum(inputs @ w1.T + b1, 0) @ w2.T + b2)
    expected = np.var(np.stack(predictions), axis=0).mean(axis=1)
    assert np.allclose(bonus.reward(window).numpy(), expected, atol=1e-6)


def test_each_model_trains_on_its_own_bootstrap_sample():
    valid = torch.ones(1000, 2, dtype=torch.bool)
    drawn = BootstrapMask(5).draw(valid, 1, torch.Generator().manual_seed(0))  # (5, B, L)
    assert not drawn[:, :, 0].any()
    chosen = drawn[:, :, 1]
    assert torch.allclose(chosen.float().mean(1), torch.full((5,), 0.5), atol=0.06)
    assert not any(torch.equal(chosen[0], other) for other in chosen[1:])
    # A model does not learn from windows outside of its bootstrap sample.
    bonus, window = mimex.Disagreement(3, 3, models=2), transitions(8)
    hidden = torch.zeros(2, 8, 2, dtype=torch.bool)
    hidden[0, :, 1] = True
    _, losses, _ = bonus.score(window.features, window.actions, window.valid, hidden)
    losses.sum().backward()
    taught = [bool(model[0].weight.grad.abs().sum() > 0) for model in bonus.ensemble]
    assert taught == [True, False]


def test_models_agree_on_unpredictable_noise_after_training():
    bonus = mimex.Disagreement(3, 3, lr=3e-3)
    start = float(bonus.reward(transitions(512, 10**6, noise=1.0)).mean())
    for step in range(150):
        _, metrics = bonus.learn(transitions(128, step, noise=1.0))
    fresh = float(bonus.reward(transitions(512, 10**6, noise=1.0)).mean())
    assert metrics["bonus/loss"] / bonus.models > 0.8  # the noise's variance remains unexplained
    assert fresh < 0.1
    assert fresh < start


def test_transitions_do_not_cross_episode_starts():
    bonus, window = mimex.Disagreement(3, 3), transitions(4)
    valid = torch.tensor([[False, True]] * 4)
    rewards, metrics = bonus.learn(Window(window.features, valid, window.actions))
    assert (rewards == 0).all()
    assert metrics["bonus/loss"] == 0


def test_actions_are_required():
    with pytest.raises(ValueError, match="window has none"):
        mimex.Disagreement().reward(Window(torch.randn(2, 2, 3)))
