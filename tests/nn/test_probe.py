"""Ridge regression compared with least squares, and on unpredictable targets."""

import pytest
import torch

from mimex.nn.probe import r2, ridge_r2


def data(count, *, noise=0.0, seed=0, features=20):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator)
    mix = torch.randn(features, 3, generator=torch.Generator().manual_seed(99))
    return x, x @ mix + 5 + noise * torch.randn(count, 3, generator=generator)


def test_linear_targets_are_predicted_at_any_feature_scale():
    parts = [data(100, seed=seed) for seed in range(3)]
    assert ridge_r2(*parts) > 0.999
    scaled = [(1000 * x + 7, y) for x, y in parts]
    assert ridge_r2(*scaled) == pytest.approx(ridge_r2(*parts))


def test_noise_is_not_predicted_and_the_penalty_shrinks_to_the_mean():
    parts = [(data(60, seed=seed)[0], data(60, seed=10 + seed)[1]) for seed in range(3)]
    assert -0.2 < ridge_r2(*parts) < 0.2


def test_more_features_than_images_can_be_fitted():
    parts = [data(count, seed=seed, features=300) for seed, count in enumerate((50, 50, 200))]
    assert 0 < ridge_r2(*parts) < 0.5


def test_without_a_penalty_the_fit_is_least_squares():
    train, validation, test = (data(200, noise=1.0, seed=seed) for seed in range(3))
    ones = torch.ones(200, 1)
    weights = torch.linalg.lstsq(torch.cat([train[0], ones], 1), train[1]).solution
    expected = r2(torch.cat([test[0], ones], 1) @ weights, test[1])
    assert ridge_r2(train, validation, test) == pytest.approx(expected, abs=5e-3)


def test_r2_is_one_for_perfect_and_zero_for_mean_predictions():
    targets = torch.tensor([[0.0, 7.0], [2.0, 7.0]])
    assert r2(targets, targets) == 1
    assert r2(torch.ones(2, 2), targets) == 0
    assert r2(torch.ones(2, 1), torch.ones(2, 1)) == 0
