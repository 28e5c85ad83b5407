import math

import pytest
import torch
from tests.parts import actions, reader
from torch.distributions import Normal

from mimex.agents.encoders import VectorEncoder
from mimex.agents.errors import NotFiniteError
from mimex.agents.ppo import PPO, PPOSettings
from mimex.agents.returns import Batch
from mimex.nn.parallel import use_workers

SCALE_FREE = {"normalize_values": True, "clip_per_network": True}


def agent(**settings):
    torch.manual_seed(0)
    return PPO(VectorEncoder(reader(4)), actions(3), PPOSettings(**settings))


def batch_of(ppo, size=256, seed=0):
    generator = torch.Generator().manual_seed(seed)
    stored = {"vector": torch.randn(size, 4, generator=generator)}
    drawn, log_probs, _ = ppo.act(stored)
    values = ppo.values(stored)
    advantages = torch.randn(size, ppo.heads, generator=generator)
    returns = values + torch.randn(size, ppo.heads, generator=generator)
    return Batch(stored, drawn, log_probs, advantages, values, returns)


def weights(ppo):
    return torch.cat([p.detach().flatten() for p in ppo.network.parameters()])


def gradient(ppo, batch, network):
    """Derivatives of the loss of a batch by all weights of one of the networks."""
    batch = batch._replace(advantages=batch.advantages.squeeze(1))  # as update makes them
    found = torch.autograd.grad(ppo.loss(batch)[0], [*network.parameters()], allow_unused=True)
    return torch.cat([part.flatten() for part in found])


def test_the_std_is_the_std_and_not_its_square():
    ppo = agent(initial_std=0.5)
    stored = {"vector": torch.zeros(20_000, 4)}
    drawn, log_probs, _ = ppo.act(stored)
    mean = ppo.act(stored, deterministic=True)[0]
    assert (drawn - mean).std(0).tolist() == pytest.approx([0.5] * 3, rel=0.03)
    expected = Normal(mean, 0.5).log_prob(drawn).sum(1)
    torch.testing.assert_close(log_probs, expected, atol=1e-4, rtol=1e-4)


def test_gradients_below_adams_epsilon_make_small_steps():
    moved = []
    for epsilon in (1e-8, 10.0):  # gradients are at most 1 long
        torch.manual_seed(0)
        ppo = agent(adam_eps=epsilon, epochs=1, minibatches=1)
        before = weights(ppo)
        ppo.update(batch_of(ppo))
        moved.append(float((weights(ppo) - before).abs().max()))
    assert moved[1] < moved[0] / 9


def test_the_same_policy_gives_actions_the_same_density_when_it_learns():
    ppo = agent(epochs=1, minibatches=1, initial_std=0.3)
    metrics = ppo.update(batch_of(ppo))
    assert metrics["ppo/approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["ppo/clip_fraction"] == 0


def test_networks_have_the_published_shape_and_start():
    ppo = PPO(VectorEncoder(reader(27)), actions(9), PPOSettings())
    shapes = [tuple(layer.weight.shape) for layer in ppo.actor if hasattr(layer, "weight")]
    assert shapes == [(256, 27), (128, 256), (64, 128), (9, 64)]
    assert ppo.critic[-1].weight.shape == (1, 64)
    last = ppo.actor[-1].weight
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(9), atol=1e-7, rtol=0)
    assert ppo.distribution.log_std.tolist() == [0.0] * 9


def test_actions_with_positive_advantage_become_likelier_and_values_nearer_to_returns():
    ppo = agent(lr=1e-3)
    batch = batch_of(ppo)
    good = batch.advantages[:, 0] > 1
    before = (batch.values - batch.returns).square().mean()
    ppo.update(batch)
    mean = ppo.act(batch.observations, deterministic=True)[0]
    density = Normal(mean, ppo.distribution.log_std.detach().exp()).log_prob(batch.actions).sum(1)
    assert (density - batch.log_probs)[good].mean() > 0.01
    assert (ppo.values(batch.observations) - batch.returns).square().mean() < before


def test_a_probability_moves_no_further_than_the_clip_pays():
    """With one action whose advantage is positive the gain is flat beyond 1 + clip."""
    ppo = agent(clip=0.1)
    batch = batch_of(ppo, 2)._replace(advantages=torch.tensor([[1.0], [-1.0]]))
    shifted = batch._replace(log_probs=batch.log_probs - math.log(1.2))  # ratios are 1.2
    alone = shifted.rows(torch.tensor([1]))  # the negative one still pays to come back
    torch.testing.assert_close(gradient(ppo, shifted, ppo.actor), gradient(ppo, alone, ppo.actor))


def test_the_update_does_not_depend_on_the_number_of_threads():
    results = []
    for workers in (1, 2):
        use_workers(workers)
        ppo = agent()
        ppo.update(batch_of(ppo, 5000))
        results.append(weights(ppo))
    use_workers(1)
    assert torch.equal(*results)


def test_an_update_in_chunks_is_the_update_on_the_whole_minibatch():
    results = []
    for chunk in (64, 4096):
        ppo = agent(epochs=1, minibatches=1)
        ppo.encoder.chunk = chunk
        ppo.update(batch_of(ppo))
        results.append(weights(ppo))
    torch.testing.assert_close(*results, atol=2e-5, rtol=0)


def length(parameters):
    return float(torch.cat([p.grad.flatten() for p in parameters]).norm())


def test_the_gradient_is_cut_to_its_length():
    ppo = agent(grad_norm=1e-3, epochs=1, minibatches=1)
    ppo.update(batch_of(ppo))
    assert length(ppo.network.parameters()) == pytest.approx(1e-3, rel=1e-4)


def test_the_reported_gradient_norm_is_the_mean_over_minibatches_before_the_clip():
    ppo = agent(epochs=2, minibatches=4, grad_norm=1e-3)
    norms = []

    def note(batch, loss=ppo.loss):
        gradients = torch.autograd.grad(loss(batch)[0] / 64, ppo.parameters)
        policy = len(ppo.clip_groups[0])
        parts = gradients, gradients[:policy], gradients[policy:]
        norms.extend(float(torch.nn.utils.get_total_norm(part)) for part in parts)
        return loss(batch)

    ppo.loss = note  # a minibatch of 64 rows is one chunk
    metrics = ppo.update(batch_of(ppo))
    assert len(norms) == 3 * 8
    total, actor, critic = (sum(norms[i::3]) for i in range(3))
    assert metrics["ppo/grad_norm"] == pytest.approx(total / 8, rel=1e-5)
    assert metrics["ppo/critic_share"] == pytest.approx(critic / (actor + critic), rel=1e-5)


def test_with_separate_clips_a_critic_that_is_far_off_does_not_stop_the_actor():
    lengths = {}
    for separate in (False, True):
        ppo = agent(grad_norm=1e-3, epochs=1, minibatches=1, clip_per_network=separate)
        batch = batch_of(ppo)
        ppo.update(batch._replace(returns=1e4 * batch.returns))
        lengths[separate] = length([*ppo.actor.parameters(), ppo.distribution.log_std])
        assert length(ppo.critic.parameters()) == pytest.approx(1e-3, rel=1e-3)
    assert lengths[True] == pytest.approx(1e-3, rel=1e-4)
    assert lengths[False] < 1e-6


def test_the_loss_is_the_textbooks():
    ppo = agent(clip=0.2, value_coef=0.7, entropy_coef=0.05, initial_std=0.6)
    batch = batch_of(ppo)
    batch = batch._replace(
        advantages=batch.advantages[:, 0],
        log_probs=batch.log_probs + 0.2 * torch.randn(256),
    )
    seen = ppo.encoder.normalizer(batch.observations["vector"])
    policy, value = Normal(ppo.actor(seen), ppo.distribution.log_std.exp()), ppo.critic(seen)
    ratio = (policy.log_prob(batch.actions).sum(1) - batch.log_probs).exp()
    clipped = ratio.clamp(0.8, 1.2)
    gain = torch.minimum(ratio * batch.advantages, clipped * batch.advantages).sum()
    errors = ((value - batch.returns) ** 2).sum()
    loss, statistics = ppo.loss(batch)
    expected = 0.7 * errors - gain - 0.05 * policy.entropy().sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-3)
    fraction = (ratio != clipped).sum().item()
    assert 20 < fraction < 236, "some are clipped and some are not"
    kl = (ratio - 1 - ratio.log()).sum().item()
    entropy = policy.entropy().sum().item()
    expected = [-gain.item(), errors.item(), kl, fraction, entropy]
    assert statistics.tolist() == pytest.approx(expected, rel=1e-4)


def test_an_adaptive_rate_brings_updates_to_the_wanted_divergence():
    ppo = agent(lr=1e-2, lr_schedule="adaptive", target_kl=0.005, shuffle=True, clip=0.5)
    kls, rates = [], []
    for seed in range(20):
        metrics = ppo.update(batch_of(ppo, 1024, seed))
        kls.append(metrics["ppo/approx_kl"])
        rates.append(metrics["ppo/lr"])
    assert kls[0] > 0.01, "the rate at the start is too high here"
    assert 0.001 < sum(kls[-4:]) / 4 < 0.01
    assert rates[-1] < 1e-2
    assert ppo.optimizer.param_groups[1]["lr"] == 1e-2, "the critic's rate is its own"


@pytest.mark.parametrize(("target_kl", "passes"), [(1e-9, 1), (1e9, 4)])
def test_an_update_ends_early_where_a_pass_went_much_too_far(target_kl, passes):
    ppo = agent(epochs=4, lr_schedule="adaptive", target_kl=target_kl)
    assert ppo.update(batch_of(ppo))["ppo/epochs"] == passes


def test_an_adaptive_rate_does_not_rise_above_where_it_began():
    ppo = agent(lr=1e-5, lr_schedule="adaptive", target_kl=0.05)
    for seed in range(3):
        metrics = ppo.update(batch_of(ppo, seed=seed))
        assert metrics["ppo/approx_kl"] < 0.025, "slow enough for a rate that rises"
    assert ppo.lr == 1e-5


def test_an_adaptive_rate_that_begins_low_is_not_raised_where_it_should_fall():
    ppo = agent(lr=1e-6, lr_schedule="adaptive", target_kl=1e-12)
    ppo.update(batch_of(ppo))
    assert ppo.lr == 1e-6


def test_a_rate_with_a_schedule_falls_over_the_run():
    ppo = agent(lr=1e-3)
    rates = [ppo.update(batch_of(ppo), done)["ppo/lr"] for done in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([1e-3, 5e-4, 0.0])


def test_the_std_does_not_fall_below_its_floor():
    ppo = agent(initial_std=0.5, min_std=0.45, lr=0.1)
    batch = batch_of(ppo)
    likely = -(batch.actions - ppo.act(batch.observations, deterministic=True)[0]).square().sum(1)
    ppo.update(batch._replace(advantages=likely[:, None]))  # pays for actions without noise
    assert ppo.distribution.log_std.exp().tolist() == pytest.approx([0.45] * 3, rel=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("factor", [2.0**-10, 2.0**10])
def test_the_size_of_rewards_does_not_matter(factor, heads):
    """Values, returns and advantages are in units of reward: another unit learns the same, to the
    last bit where the factor is a power of two."""
    results = []
    for unit in (1.0, factor):
        ppo = agent(**SCALE_FREE, two_heads=heads == 2)
        for seed in range(3):
            batch = batch_of(ppo, seed=seed)
            noise = torch.randn(256, heads, generator=torch.Generator().manual_seed(seed))
            returns = (30.0 + 10.0 * noise) * unit
            advantages = returns - batch.values
            ppo.update(
                batch._replace(returns=returns, advantages=advantages), weights=[1, 1][:heads]
            )
        results.append((weights(ppo), ppo.values(batch.observations) / unit))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


def test_neither_of_two_streams_drowns_the_other():
    """The policy learns the same from both, though one's rewards are a million times as large."""
    ppo = agent(**SCALE_FREE, two_heads=True)
    batch = batch_of(ppo)
    units = torch.tensor([1e3, 1e-3])
    ppo.return_scale.update(batch.returns * units, ppo.critic[-1])
    both = ppo.return_scale.combined(batch.advantages * units)
    for head in (0, 1):
        alone = ppo.return_scale.combined(batch.advantages * units, [1 - head, head])
        assert 0.5 < torch.corrcoef(torch.stack([both, alone]))[0, 1] < 0.9
    weighed = ppo.return_scale.combined(batch.advantages * units, [1, 3], per_head=False)
    torch.testing.assert_close(weighed, batch.advantages @ torch.tensor([1e3, 3e-3]))


@pytest.mark.parametrize("part", ["returns", "advantages"])
def test_numbers_that_are_not_finite_change_nothing_and_hand_over_the_batch(part):
    ppo = agent(**SCALE_FREE, epochs=1, minibatches=1)
    ppo.update(batch_of(ppo))
    batch = batch_of(ppo)
    getattr(batch, part)[7] = math.nan
    values = ppo.values(batch.observations)
    with pytest.raises(NotFiniteError, match="not finite") as caught:
        ppo.update(batch)
    torch.testing.assert_close(ppo.values(batch.observations), values)
    assert getattr(caught.value.batch, part).isnan().any()


def test_a_saved_agent_goes_on_exactly():
    settings = SCALE_FREE | {"lr_schedule": "adaptive", "target_kl": 1e-6}
    one, other = agent(**settings), agent(**settings)
    one.update(batch_of(one))
    assert one.lr != other.lr
    other.load_state_dict(one.state_dict())
    for ppo in (one, other):
        ppo.update(batch_of(ppo, seed=1))
    assert torch.equal(weights(one), weights(other))


def test_a_state_that_does_not_fit_is_refused():
    other = PPO(VectorEncoder(reader(5)), actions(3), PPOSettings())
    with pytest.raises(ValueError, match=r"actor\.0\.weight has shape"):
        agent().load_state_dict(other.state_dict())


def test_two_heads_have_two_values():
    ppo = agent(two_heads=True)
    batch = batch_of(ppo)
    assert batch.values.shape == (256, 2)
    ppo.update(batch)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 0.0}, r"ppo\.lr"),
        ({"lr": math.inf}, r"ppo\.lr"),
        ({"discount": 1.1}, r"ppo\.discount"),
        ({"intrinsic_discount": 1.0}, r"ppo\.intrinsic_discount is 1\.0, but must be in \[0, 1\)"),
        ({"clip": -1.0}, "clip"),
        ({"hidden": (64, 0)}, r"ppo\.hidden"),
        ({"entropy_coef": math.nan}, "entropy_coef"),
        ({"lr_schedule": "cosin"}, "adaptive, cosine, constant"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        PPOSettings(**settings)


def test_more_minibatches_than_steps_are_refused():
    ppo = agent(minibatches=8)
    with pytest.raises(ValueError, match=r"ppo.minibatches is 8, but the rollout has only 4 steps"):
        ppo.update(batch_of(ppo, 4))
