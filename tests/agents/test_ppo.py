import math

import pytest
import torch
from torch.distributions import Normal

from mimex.agents.encoders import VectorEncoder
from mimex.agents.errors import NotFiniteError
from mimex.agents.ppo import PPO, Batch
from mimex.agents.ppo_settings import PPOSettings
from mimex.nn.parallel import use_workers


def agent(**settings):
    torch.manual_seed(0)
    return PPO(VectorEncoder(4), 3, PPOSettings(**settings))


def batch_of(ppo, size=256, seed=0):
    generator = torch.Generator().manual_seed(seed)
    stored = {"vector": torch.randn(size, 4, generator=generator)}
    actions, log_probs, _ = ppo.act(stored)
    values = ppo.values(stored)
    advantages = torch.randn(size, generator=generator)
    returns = values + torch.randn(size, ppo.heads, generator=generator)
    return Batch(stored, actions, log_probs, advantages, values, returns)


def weights(ppo):
    return torch.cat([p.detach().flatten() for p in ppo.network.parameters()])


def gradient(ppo, batch, network):
    """Derivatives of the loss of a batch by all weights of one of the networks."""
    rows = torch.arange(len(batch.actions))
    found = ppo._gradients(batch, rows, share=1.0)[0]
    parameters = ppo._parameters.values()
    by = dict(zip(parameters, found.split([p.numel() for p in parameters]), strict=True))
    return torch.cat([by[p] for p in network.parameters()])


def test_the_std_is_the_std_and_not_its_square():
    ppo = agent(initial_std=0.5)
    stored = {"vector": torch.zeros(20_000, 4)}
    actions, log_probs, _ = ppo.act(stored)
    mean = ppo.act(stored, deterministic=True)[0]
    assert (actions - mean).std(0).tolist() == pytest.approx([0.5] * 3, rel=0.03)
    expected = Normal(mean, 0.5).log_prob(actions).sum(1)
    torch.testing.assert_close(log_probs, expected, atol=1e-4, rtol=1e-4)


def test_the_same_policy_gives_actions_the_same_density_when_it_learns():
    ppo = agent(epochs=1, minibatches=1, initial_std=0.3)
    metrics = ppo.update(batch_of(ppo), lr=1e-12)
    assert metrics["ppo/divergence"] == pytest.approx(0, abs=1e-6)
    assert metrics["ppo/clipped"] == 0


def test_networks_have_the_published_shape_and_start():
    ppo = PPO(VectorEncoder(27), 9, PPOSettings())
    shapes = [tuple(layer.weight.shape) for layer in ppo.actor if hasattr(layer, "weight")]
    assert shapes == [(256, 27), (128, 256), (64, 128), (9, 64)]
    assert ppo.critic[-1].weight.shape == (1, 64)
    last = ppo.actor[-1].weight
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(9), atol=1e-7, rtol=0)
    assert ppo.log_std.tolist() == [0.0] * 9


def test_actions_with_positive_advantage_become_likelier_and_values_nearer_to_returns():
    ppo = agent(lr=1e-3)
    batch = batch_of(ppo)
    good = batch.advantages > 1
    before = (batch.values - batch.returns).square().mean()
    ppo.update(batch, lr=1e-3)
    mean = ppo.act(batch.observations, deterministic=True)[0]
    density = Normal(mean, ppo.log_std.detach().exp()).log_prob(batch.actions).sum(1)
    assert (density - batch.log_probs)[good].mean() > 0.01
    assert (ppo.values(batch.observations) - batch.returns).square().mean() < before


def test_a_probability_moves_no_further_than_the_clip_pays():
    """With one action whose advantage is positive the gain is flat beyond 1 + clip."""
    ppo = agent(clip=0.1)
    batch = batch_of(ppo, 2)._replace(advantages=torch.tensor([1.0, -1.0]))
    shifted = batch._replace(log_probs=batch.log_probs - math.log(1.2))  # ratios are 1.2
    alone = shifted.rows(torch.tensor([1]))  # the negative one still pays to come back
    torch.testing.assert_close(gradient(ppo, shifted, ppo.actor), gradient(ppo, alone, ppo.actor))


def test_a_clipped_value_stops_where_its_limit_is():
    ppo = agent(value_clip=0.1)
    batch = batch_of(ppo)
    moved = batch._replace(values=batch.values - 0.5, returns=batch.values + 5)
    # The value has already gone 0.5 towards the return: only the policy still learns.
    assert float(gradient(ppo, moved, ppo.critic).abs().max()) == 0
    assert float(gradient(ppo, moved, ppo.actor).abs().max()) > 0


def test_the_update_does_not_depend_on_the_number_of_threads():
    results = []
    for workers in (1, 2):
        use_workers(workers)
        ppo = agent()
        ppo.update(batch_of(ppo, 5000), lr=1e-3)
        results.append(weights(ppo))
    use_workers(1)
    assert torch.equal(*results)


def test_an_update_in_chunks_is_the_update_on_the_whole_minibatch():
    results = []
    for chunk in (64, 4096):
        ppo = agent(epochs=1, minibatches=1)
        ppo.encoder.chunk = chunk
        ppo.update(batch_of(ppo), lr=1e-3)
        results.append(weights(ppo))
    torch.testing.assert_close(*results, atol=2e-5, rtol=0)


def test_the_gradient_is_cut_to_its_length():
    ppo = agent(grad_norm=1e-3, epochs=1, minibatches=1)
    ppo.update(batch_of(ppo), lr=1e-3)
    cut = torch.cat([p.grad.flatten() for p in ppo.network.parameters()])
    assert float(cut.norm()) == pytest.approx(1e-3, rel=1e-4)


def test_a_loss_that_is_not_finite_changes_nothing_and_hands_over_the_batch():
    ppo = agent(epochs=1, minibatches=1)
    batch = batch_of(ppo)
    batch.returns[7] = math.nan
    before = weights(ppo)
    with pytest.raises(NotFiniteError, match="not finite") as caught:
        ppo.update(batch, lr=1e-3)
    assert torch.equal(weights(ppo), before)
    assert caught.value.batch.returns.isnan().any()


def test_a_saved_agent_goes_on_exactly():
    one, other = agent(), agent(lr=5e-4)
    one.update(batch_of(one), lr=1e-3)
    other.load_state_dict(one.state_dict())
    for ppo in (one, other):
        ppo.update(batch_of(ppo, seed=1), lr=1e-3)
    assert torch.equal(weights(one), weights(other))


def test_a_state_that_does_not_fit_is_refused():
    other = PPO(VectorEncoder(5), 3, PPOSettings())
    with pytest.raises(ValueError, match=r"actor\.0\.weight has shape"):
        agent().load_state_dict(other.state_dict())


def test_two_heads_have_two_values():
    ppo = agent(two_heads=True)
    batch = batch_of(ppo)
    assert batch.values.shape == (256, 2)
    ppo.update(batch, lr=1e-3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"lr": 0.0}, r"ppo\.lr"), ({"discount": 1.1}, r"ppo\.discount"), ({"clip": -1.0}, "clip")],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        PPOSettings(**settings)


def test_more_minibatches_than_steps_are_refused():
    ppo = agent(minibatches=8)
    with pytest.raises(ValueError, match="minibatches=8 of a rollout of 4 steps"):
        ppo.update(batch_of(ppo, 4), lr=1e-3)
