"""The probes of `benchmarks`: each does what it says, so that what they measured counts."""

from __future__ import annotations

import torch
from benchmarks.probes import Disagree, Fall, Newest, NewestMask, Projected, Whitened

from mimex import Window


def windows(count: int = 512, numbers: int = 6, seed: int = 0) -> Window:
    """Correlated features, so that what is hidden can be told from what is seen."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(count, 1, 1, generator=generator)
    return Window(common + 0.1 * torch.randn(count, 5, numbers, generator=generator))


def codes(count: int = 512) -> Window:
    """A walk over five codes that always goes the same way round."""
    first = torch.randint(5, (count, 1), generator=torch.Generator().manual_seed(0))
    return Window(torch.nn.functional.one_hot((first + torch.arange(5)) % 5, 5).float())


def test_the_fall_of_the_error_is_nothing_before_it_has_fallen() -> None:
    for discrete_obs, window in enumerate((windows(), codes())):
        bonus = Fall(window.features.shape[2], discrete_obs=bool(discrete_obs))
        assert (bonus.reward(window) == 0).all()
        for _ in range(5):
            bonus.learn(window)
        assert bonus.reward(window).mean() > 0


def test_models_that_are_the_same_do_not_disagree() -> None:
    for discrete_obs, window in enumerate((windows(), codes())):
        bonus = Disagree(window.features.shape[2], discrete_obs=bool(discrete_obs))
        before = bonus.reward(window)
        assert (before > 0).all()
        for _ in range(30):
            bonus.learn(window)
        assert bonus.reward(window).mean() < before.mean()
        for model in bonus.models:
            model.load_state_dict(bonus.models[0].state_dict())
        torch.testing.assert_close(bonus.reward(window), torch.zeros(512))


def test_the_newest_step_is_hidden_in_half_of_the_windows() -> None:
    valid = torch.ones(2_000, 5, dtype=torch.bool)
    hidden = NewestMask(0.5, 8).draw(valid, 1, torch.Generator().manual_seed(0))[0]
    assert 0.45 < hidden[:, -1].all(1).float().mean() < 0.55
    assert hidden[:, :-1].all(2).any(1).float().mean() < 0.1
    bonus = Newest(6)
    assert bonus.mask == NewestMask(0.8, 6)
    assert bonus.reward(windows()).shape == (512,)


def test_whitened_features_are_uncorrelated() -> None:
    bonus, window = Whitened(), windows(4_096)
    bonus.learn(window)
    seen = bonus.seen(window.features[:, -1])
    torch.testing.assert_close(torch.cov(seen.T), torch.eye(6), atol=0.1, rtol=0)


def test_projected_features_are_sums_of_all() -> None:
    bonus, window = Projected(), windows()
    features = window.features[:, -1]
    torch.testing.assert_close(bonus.seen(2 * features), 2 * bonus.seen(features))
    assert (bonus.seen(torch.eye(6)) != 0).all()
    bonus.learn(window)
