import math

import numpy as np
import pytest
import torch
from tests.walks import walk

import mimex
from mimex import Window
from mimex.bonus.surprise import surprisal

CODES = 100


def test_surprisal_matches_hand_computed_values():
    logits = torch.tensor([[3.0, 1.0, 1e-30]]).log()  # probabilities 3/4, 1/4 and 0
    likelihood, beyond = surprisal(
        logits, torch.tensor([[0.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    )
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(likelihood) == pytest.approx(math.log(4))
    assert float(beyond) == pytest.approx(math.log(4) - entropy)


def test_visible_features_are_not_scored():
    codes, hidden = torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([[True, True, False]])
    likelihood, _ = surprisal(torch.tensor([[0.0, 0.0, 50.0]]), codes, hidden)
    assert float(likelihood) == pytest.approx(math.log(2))
    likelihood, beyond = surprisal(torch.zeros(1, 3), codes, torch.tensor([[True, False, True]]))
    assert float(likelihood) == float(beyond) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [mimex.MIMEx, mimex.PseudoCount, lambda n, **kw: mimex.MIMEx(n, masks=2, **kw)]
)
@pytest.mark.parametrize("integers", [False, True])
def test_unseen_codes_score_ten_times_as_high_as_seen_ones(make, integers):
    """With squared error the ratio is 1.02."""
    rng = np.random.default_rng(0)
    settings = {"normalize": True} if integers else {"discrete_obs": True}
    bonus = make(CODES, length=5, **settings)
    for _ in range(60):
        bonus.learn(walk(rng, 64, integers=integers))
    seen, unseen = (bonus.reward(walk(rng, 500, far=far)).mean() for far in (False, True))
    assert float(unseen) > 10 * float(seen) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("side", "turn", "seed"), [(6, 1.0, 1), (16, 0.2, 3)])
def test_unseen_codes_score_higher_on_larger_grids_and_straighter_walks(side, turn, seed):
    rng = np.random.default_rng(seed)
    bonus = mimex.MIMEx(side**2, length=5, discrete_obs=True, seed=seed)
    for _ in range(100):
        bonus.learn(walk(rng, 128, side=side, turn=turn))
    seen, unseen = (
        bonus.reward(walk(rng, 1000, far=far, side=side, turn=turn)).mean() for far in (False, True)
    )
    assert float(unseen) > 10 * float(seen) > 0


@pytest.mark.parametrize("kind", [mimex.MIMEx, mimex.PseudoCount])
def test_a_first_batch_that_looks_one_hot_does_not_make_observations_discrete(kind):
    bonus = kind(length=5, normalize=True)
    bonus.learn(walk(np.random.default_rng(0), 8))
    assert bonus.discrete_obs is False
    bonus.learn(Window(torch.randn(4, 5, CODES)))


@pytest.mark.parametrize("kind", [mimex.MIMEx, mimex.PseudoCount])
def test_observations_are_discrete_by_argument_or_integer_dtype(kind):
    rng = np.random.default_rng(0)
    by_argument, integers = kind(CODES, 5, discrete_obs=True, seed=1), kind(CODES, 5, seed=1)
    window = walk(rng, 8)
    rewards = by_argument.learn(window)[0]
    assert torch.equal(rewards, integers.learn(Window(window.features.argmax(2)))[0])
    assert integers.discrete_obs
    assert not torch.equal(rewards, kind(CODES, 5, seed=1).learn(window)[0])
    for features in (torch.randn(4, 5, CODES), torch.eye(CODES)[:5].cumsum(0).expand(4, 5, CODES)):
        with pytest.raises(ValueError, match="make the bonus with discrete_obs=False"):
            by_argument.learn(Window(features))


def test_encoded_features_are_not_discrete():
    bonus = mimex.MIMEx(discrete_obs=True, encoder=lambda x: x.float() + 0.5)
    assert bonus.learn(walk(np.random.default_rng(0), 8))[0].isfinite().all()
    assert not bonus.categorical


def test_multi_discrete_observations_are_discrete():
    codes = torch.cat([torch.eye(3)[torch.randint(3, (8, 5))], torch.eye(4)[:1].expand(8, 5, 4)], 2)
    bonus = mimex.MIMEx(lr=1e-3, discrete_obs=True)
    first, _ = bonus.learn(Window(codes))
    assert bool((first >= 0).all())


@pytest.mark.parametrize("kind", [mimex.MIMEx, mimex.PseudoCount])
def test_a_bonus_of_codes_is_saved_and_continues(kind):
    rng = np.random.default_rng(0)
    bonus = kind(length=5, normalize=True, discrete_obs=True)
    again = kind(length=5, normalize=True)
    bonus.learn(walk(rng, 16))
    again.load_state_dict(bonus.state_dict())
    window = walk(rng, 16)
    assert torch.equal(bonus.learn(window)[0], again.learn(window)[0])
    assert again.discrete_obs


@pytest.mark.parametrize("mask_type", ["time", "feature"])
def test_reconstructions_of_codes_are_probabilities(mask_type):
    bonus = mimex.MIMEx(mask_type=mask_type, discrete_obs=True)
    window = walk(np.random.default_rng(0), 4)
    hidden, filled = bonus.reconstruct(window)
    masked_entries = hidden.view(4, 5, -1).expand_as(filled)
    torch.testing.assert_close((filled * masked_entries).sum(2), masked_entries.any(2).float())
    assert bool((filled[masked_entries] < 1).all())
    assert torch.equal(filled[~masked_entries], window.features[~masked_entries])


def test_single_features_of_codes_can_be_masked():
    bonus = mimex.MIMEx(CODES, mask=mimex.masks.FeatureMask(0.8), discrete_obs=True)
    rewards, metrics = bonus.learn(walk(np.random.default_rng(0), 16))
    assert metrics["bonus/loss"] > 0
    assert bool(rewards.isfinite().all())


@pytest.mark.parametrize("kind", [mimex.MIMEx, mimex.PseudoCount])
def test_the_loss_of_discrete_observations_is_negative_log_likelihood(kind):
    """For a model that predicts the same logits at every step, without a bonus."""
    bonus = kind(CODES, 5, masks=2, discrete_obs=True)
    *_, bias = bonus.network.parameters()
    for parameter in bonus.network.parameters():
        parameter.data.zero_()
    bias.data.copy_(torch.linspace(-3, 3, CODES))
    window, valid = walk(np.random.default_rng(0), 16), torch.ones(16, 5, dtype=torch.bool)
    hidden = bonus.mask.draw(bonus.usable_steps(valid), 2, torch.Generator().manual_seed(0))
    likelihoods, _ = surprisal(bias.detach().expand(hidden.shape), window.features, hidden)
    expected = (likelihoods.sum(-1) / hidden.any(-1).sum(-1)).mean()
    assert bonus.learn(window)[1]["bonus/loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("kind", [mimex.MIMEx, mimex.PseudoCount])
@pytest.mark.parametrize("normalize", [False, True])
def test_squared_error_treats_discrete_observations_as_floats(kind, normalize):
    rng = np.random.default_rng(0)
    squared = kind(CODES, 5, discrete_obs=True, loss="squared", normalize=normalize)
    plain = kind(CODES, 5, discrete_obs=False, normalize=normalize)
    for _ in range(2):
        window = walk(rng, 16)
        assert torch.equal(squared.learn(window)[0], plain.learn(window)[0])
    with pytest.raises(ValueError, match="loss='hinge' is unknown"):
        kind(loss="hinge")
