import pytest
import torch
import torch.nn.functional as F

import mimex
from mimex.types import Window


def transitions(batch=64, seed=0):
    """s' = s + a exactly, with windows (s, s') and the action stored with s'."""
    g = torch.Generator().manual_seed(seed)
    states, actions = torch.randn(batch, 3, generator=g), torch.randn(batch, 3, generator=g)
    features = torch.stack([states, states + actions], 1)
    return Window(features, actions=torch.stack([torch.full_like(actions, 9.0), actions], 1))


def test_reward_equals_the_formula_of_the_paper():
    icm, window = mimex.ICM(3, 3), transitions()
    embed, forward = icm.embed, icm.forward_model
    with torch.no_grad():
        s, after, a = window.features[:, 0], window.features[:, 1], window.actions[:, 1]
        expected = ((forward(torch.cat([embed(s), a], 1)) - embed(after)) ** 2).mean(1)
    assert torch.allclose(icm.reward(window), expected, atol=1e-6)


@pytest.mark.parametrize("discrete", [False, True])
def test_the_encoder_is_trained_by_the_inverse_model_only(discrete):
    icm = mimex.ICM(3, 3, discrete=discrete)
    window = transitions()
    codes = torch.randint(0, 3, (64, 2), generator=torch.Generator().manual_seed(1))
    if discrete:
        window = Window(window.features, actions=codes)
    icm.learn(window)  # leaves gradients
    grads = {k: p.grad.clone() for k, p in icm.network.named_parameters()}

    twin = mimex.ICM(3, 3, discrete=discrete)
    before, after = twin.embed(window.features).unbind(1)
    guess = twin.inverse_model(torch.cat([before, after], 1))
    if discrete:
        inverse = F.cross_entropy(guess, codes[:, 1])
        action = F.one_hot(codes[:, 1], 3).float()
    else:
        action = window.actions[:, 1]
        inverse = ((guess - action) ** 2).mean()
    predicted = twin.forward_model(torch.cat([before.detach(), action], 1))
    forward = ((predicted - after.detach()) ** 2).mean()
    (inverse + forward).backward()
    for name, parameter in twin.network.named_parameters():
        assert torch.allclose(grads[name], parameter.grad, atol=1e-5), name


def test_the_inverse_model_gets_the_action_between_both_states():
    """The released code paired (s, s') with the next action: it learned the policy."""
    aligned, shifted = mimex.ICM(3, 3), mimex.ICM(3, 3)
    losses = {}
    for name, icm in (("aligned", aligned), ("shifted", shifted)):
        for step in range(300):
            window = transitions(256, step)
            if name == "shifted":
                wrong = window.actions.roll(1, 0)
                window = Window(window.features, actions=wrong)
            losses[name] = icm.learn(window)[1]["bonus/loss"]
    assert losses["aligned"] < 0.1  # s' - s determines the action
    assert losses["shifted"] > 0.8  # unpredictable: the variance of the action remains


def test_transitions_do_not_cross_episode_starts():
    icm = mimex.ICM(3, 3)
    window = transitions(4)
    valid = torch.tensor([[False, True]] * 4)
    rewards, metrics = icm.learn(Window(window.features, valid, window.actions))
    assert (rewards == 0).all()
    assert metrics["bonus/loss"] == 0


def test_settings_are_used():
    icm = mimex.ICM(3, 2, embed_dim=11, hidden=7, lr=0.25)
    assert icm.embed.out_features == 11
    assert icm.inverse_model[0].out_features == 7
    assert icm.optimizer.param_groups[0]["lr"] == 0.25


def test_actions_are_required_and_checked():
    icm = mimex.ICM(3, 4, discrete=True)
    with pytest.raises(ValueError, match="window has none"):
        icm.reward(Window(torch.randn(2, 2, 3)))
    with pytest.raises(ValueError, match="0 to action_dim - 1 = 3"):
        icm.reward(Window(torch.randn(2, 2, 3), actions=torch.full((2, 2), 4)))


@pytest.mark.parametrize("kind", [mimex.ICM, mimex.E3B])
def test_whether_actions_are_discrete_is_not_guessed_from_their_values(kind):
    """Continuous actions of a first batch may happen to be zeros and ones."""
    states = torch.randn(4, 2, 3)
    bonus = kind(3, 4)
    bonus.learn(Window(states, actions=torch.eye(4)[torch.randint(4, (4, 2))]))
    assert bonus.discrete is False
    bonus.learn(Window(states, actions=torch.randn(4, 2, 4)))
    integers = kind(3, 4)
    integers.learn(Window(states, actions=torch.randint(4, (4, 2))))
    assert integers.discrete is True


@pytest.mark.parametrize("kind", [mimex.ICM, mimex.E3B])
def test_multi_discrete_actions_with_discrete_true_raise_with_the_remedy(kind):
    two = torch.cat([torch.eye(2)[torch.randint(2, (8, 2))], torch.eye(3)[:2].expand(8, 2, 3)], 2)
    window = Window(torch.randn(8, 2, 3), actions=two)
    with pytest.raises(ValueError, match=r"discrete=False .*MultiDiscrete"):
        kind(3, 5, discrete=True).learn(window)
    kind(3, 5).learn(window)


def test_all_dimensions_of_multi_discrete_actions_are_learned():
    """The second of two actions moves the state; the inverse model predicts it."""
    icm, g = mimex.ICM(3, 5, lr=3e-3), torch.Generator().manual_seed(0)
    moves = torch.randn(3, 3, generator=g)
    for _ in range(300):
        first, second = (torch.randint(n, (128,), generator=g) for n in (2, 3))
        states = torch.randn(128, 3, generator=g)
        action = torch.cat([torch.eye(2)[first], torch.eye(3)[second]], 1)
        features = torch.stack([states, states + moves[second]], 1)
        icm.learn(Window(features, actions=torch.stack([action, action], 1)))
    before, after = icm.embed(features).unbind(1)
    guess = icm.inverse_model(torch.cat([before, after], 1))[:, 2:].argmax(1)
    assert float((guess == second).float().mean()) > 0.9
