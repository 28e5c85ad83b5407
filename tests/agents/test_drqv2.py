import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import actions, reader
from tests.plain_drqv2 import PlainDrQv2

from mimex.agents.drqv2 import MIMEX, PUBLISHED, DrQv2, DrQv2Settings, noisy
from mimex.agents.errors import NotFiniteError
from mimex.data.replay import ReplayBuffer
from mimex.nn.parallel import use_workers
from mimex.train.checkpoint import load, save

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


def agent(pixels, seed=0, device="cpu", **settings):
    return DrQv2(
        reader(9, 40, 40, device=device) if pixels else reader(4, device=device),
        actions(2),
        DrQv2Settings(**SMALL | settings),
        seed,
    )


def weights(drqv2):
    return torch.cat([p.detach().flatten() for p in drqv2.network.parameters()])


def test_the_noise_is_drawn_from_other_random_numbers_than_the_weights():
    def drawn(seed):
        return torch.randn(50, generator=agent(False, seed).generator)

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))
    assert not torch.equal(drawn(3), torch.randn(50, generator=torch.Generator().manual_seed(3)))


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("pixels", [False, True])
def test_an_update_on_a_gpu_stays_there(pixels):
    drqv2 = agent(pixels, device="cuda")
    replay = filled(pixels, window=3, run=2, n_step=3, device="cuda")
    batch = replay.sample(20, torch.Generator().manual_seed(0))
    before, encoded = weights(drqv2), drqv2.encode(batch)
    drqv2.update(batch, 0, encoded=encoded)
    assert encoded.windows.device == weights(drqv2).device == torch.device(drqv2.device)
    assert weights(drqv2).device.type == "cuda"
    assert not torch.equal(weights(drqv2), before)
    assert drqv2.act(replay.newest(), 0).device.type == "cuda"


@pytest.mark.parametrize("pixels", [False, True])
def test_an_update_is_that_of_the_plain_arithmetic(pixels):
    """Without noise and shifts all that is left is arithmetic: pieces must add up to the whole.

    Gradient descent in place of Adam, which makes steps of one size of the tiniest differences.
    """
    ours = agent(pixels, shift=0, std_start=1e-12, std_end=1e-12)
    plain = PlainDrQv2(copy.deepcopy(ours))
    for model in (ours, plain):
        learned = [*model.encoder.parameters(), *model.critic.parameters()]
        of_critic = torch.optim.SGD(learned, 0.01)
        of_actor = torch.optim.SGD(model.actor.parameters(), 0.01)
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


@pytest.mark.parametrize("pixels", [False, True])
def test_results_do_not_depend_on_the_number_of_threads(pixels):
    replay = filled(pixels, window=3, n_step=2)
    results = []
    for workers in (1, 3):
        use_workers(workers)
        try:
            drqv2 = agent(pixels)
            for seed in range(2):
                batch = replay.sample(150, torch.Generator().manual_seed(seed))
                encoded = drqv2.encode(batch)
                metrics = drqv2.update(batch, 10, encoded=encoded)
            results.append((weights(drqv2), encoded.windows, metrics))
        finally:
            use_workers(1)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][2] == results[1][2]


@pytest.mark.parametrize("pixels", [False, True])
def test_an_agent_continues_bit_for_bit_from_its_state(pixels, tmp_path):
    replay = filled(pixels)
    straight = agent(pixels)
    batches = [replay.sample(40, torch.Generator().manual_seed(seed)) for seed in range(4)]
    for batch in batches[:2]:
        straight.update(batch, 5)
    save(tmp_path / "agent", straight.state_dict())
    resumed = agent(pixels, seed=7)
    resumed.load_state_dict(load(tmp_path / "agent"))
    for drqv2 in (straight, resumed):
        for batch in batches[2:]:
            drqv2.update(batch, 5)
    assert torch.equal(weights(straight), weights(resumed))
    seen = replay.newest()
    assert torch.equal(straight.act(seen, 100), resumed.act(seen, 100))


def test_a_state_of_another_size_is_refused_and_changes_nothing():
    drqv2 = agent(pixels=False)
    before = weights(drqv2).clone()
    with pytest.raises(ValueError, match=r"does not fit this DrQ-v2"):
        drqv2.load_state_dict(agent(pixels=False, hidden=16).state_dict())
    assert torch.equal(weights(drqv2), before)


@pytest.mark.parametrize(("pixels", "features"), [(False, "encoder"), (True, "trunk")])
def test_windows_show_what_the_bonus_sees_of_each_observation(pixels, features):
    drqv2 = agent(pixels, shift=0, features=features)
    replay = filled(pixels, window=4, n_step=2)
    batch = replay.sample(33, torch.Generator().manual_seed(0))
    shown = drqv2.encode(batch).windows
    assert shown.shape == (33, 4, drqv2.feature_dim)
    assert not shown.requires_grad
    everything = torch.cat([batch.observations[:], batch.windows.others[:]])
    seen = drqv2.features(everything)[batch.windows.positions]
    valid = batch.windows.valid
    assert not valid.all()
    torch.testing.assert_close(shown[valid], seen[valid])
    assert not shown[~valid].any()


def test_a_window_and_its_observation_are_shifted_alike():
    """The last step of a window is the observation itself: its features must be the same."""
    drqv2 = agent(pixels=True, features="encoder")
    for run in (1, 3):
        replay = filled(pixels=True, window=2, run=run)
        batch = replay.sample(20, torch.Generator().manual_seed(0))
        # The same frame in the past and in the present: only the shift could tell them apart.
        replay.observations[:] = replay.observations[0]
        encoded = drqv2.encode(batch)
        present = torch.cat(encoded.blocks).detach()
        for row in batch.windows.valid.all(1).nonzero().flatten():
            torch.testing.assert_close(encoded.windows[row, 0], present[row])
        apart = present[0] != present[run]
        assert apart.any()


@given(st.integers(0, 10_000))
def test_noise_falls_in_a_line_and_then_stays(step):
    settings = DrQv2Settings(std_start=1.0, std_end=0.2, std_steps=4000)
    expected = 1 - 0.8 * step / 4000 if step < 4000 else 0.2
    assert settings.std(step) == pytest.approx(expected)


def test_actions_are_random_at_first_then_the_policys_with_noise_of_the_schedules_size():
    drqv2 = agent(pixels=False, random_steps=100, std_start=0.05, std_end=0.05)
    vectors = torch.zeros(20_000, 4)
    early = drqv2.act(vectors, 99)
    assert early.abs().max() <= 1
    assert early.std().item() == pytest.approx(1 / 3**0.5, rel=0.02)  # of a uniform in [-1, 1]
    mean = drqv2.act(vectors, 100, deterministic=True)
    noise = drqv2.act(vectors, 100) - mean
    assert noise.std().item() == pytest.approx(0.05, rel=0.02)
    assert torch.equal(drqv2.act(vectors, 0, deterministic=True), mean)


def test_actions_stay_inside_and_the_gradient_passes_where_they_are_cut_off():
    mean = torch.tensor([0.9, -0.2], requires_grad=True)
    actions = noisy(mean, torch.tensor([0.3, 0.1]))
    assert actions.tolist() == pytest.approx([1 - 1e-6, -0.1])
    actions.sum().backward()
    assert mean.grad.tolist() == [1.0, 1.0]


def test_targets_use_the_reward_that_was_handed_in():
    replay = filled(pixels=False)
    batch = replay.sample(100, torch.Generator().manual_seed(0))
    metrics = agent(pixels=False).update(batch, 0, rewards=torch.full((100,), 1000.0))
    assert metrics["drqv2/critic_loss"] > 1e5
    assert metrics["drqv2/reward"] == 1000


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_changed():
    replay = filled(pixels=False)
    batch = replay.sample(100, torch.Generator().manual_seed(0))
    drqv2 = agent(pixels=False)
    before = weights(drqv2).clone()
    with pytest.raises(NotFiniteError, match="critic") as error:
        drqv2.update(batch, 0, rewards=torch.full((100,), torch.nan))
    assert torch.equal(weights(drqv2), before)
    assert error.value.batch is batch


def test_the_slow_critic_follows_by_its_share():
    drqv2 = agent(pixels=False, tau=0.25, lr=0.01)
    old = [p.detach().clone() for p in drqv2.target.parameters()]
    drqv2.update(filled(pixels=False).sample(50, torch.Generator().manual_seed(0)), 0)
    for before, slow, fast in zip(
        old, drqv2.target.parameters(), drqv2.critic.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, 0.75 * before + 0.25 * fast)


def test_published_settings():
    settings = dataclasses.asdict(PUBLISHED)
    assert settings == {
        "lr": 1e-4,
        "batch": 256,
        "n_step": 3,
        "discount": 0.99,
        "tau": 0.01,
        "update_every": 2,
        "seed_steps": 2000,
        "random_steps": 2000,
        "std_start": 1.0,
        "std_end": 0.1,
        "std_steps": 100_000,
        "std_clip": 0.3,
        "shift": 4,
        "filters": 32,
        "trunk": 50,
        "hidden": 1024,
        "features": "trunk",
    }
    assert dataclasses.asdict(MIMEX) == settings | {"batch": 1024, "n_step": 1}


def test_fewer_filters_make_a_smaller_encoder():
    drqv2 = DrQv2(reader(9, 40, 40), actions(2), dataclasses.replace(PUBLISHED, filters=16))
    shapes = [layer.weight.shape[0] for layer in drqv2.encoder.pixels.convolutions[::2]]
    assert shapes == [16] * 4
    assert drqv2.encoder.features == 16 * 13**2
    with pytest.raises(ValueError, match=r"drqv2\.filters is 0"):
        dataclasses.replace(PUBLISHED, filters=0)


def test_networks_have_the_published_shapes():
    drqv2 = DrQv2(reader(9, 84, 84), actions(6), PUBLISHED)
    assert drqv2.actor.trunk[0].weight.shape == (50, 39_200)
    assert [tuple(x.weight.shape) for x in drqv2.actor.policy if hasattr(x, "weight")] == [
        (1024, 50),
        (1024, 1024),
        (6, 1024),
    ]
    for q in (drqv2.critic.q1, drqv2.critic.q2):
        shapes = [tuple(x.weight.shape) for x in q if hasattr(x, "weight")]
        assert shapes == [(1024, 56), (1024, 1024), (1, 1024)]
    assert not torch.equal(drqv2.critic.q1[0].weight, drqv2.critic.q2[0].weight)


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 0), ("batch", 0), ("discount", 1.5), ("std_end", -1), ("shift", -1)]
)
def test_settings_that_make_no_sense_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"drqv2\.{name} is {value}"):
        DrQv2Settings(**{name: value})


def test_it_learns_to_go_where_the_reward_is():
    """A point on a line is paid for being near 0.5, and the action moves it."""
    generator = torch.Generator().manual_seed(0)
    settings = DrQv2Settings(
        hidden=64, trunk=16, lr=1e-3, random_steps=200, std_steps=800, batch=64, discount=0.9
    )
    drqv2 = DrQv2(reader(1), actions(1), settings, seed=0)
    replay = ReplayBuffer(2000, (1,), 1, pixels=False, n_step=3, discount=0.9)

    def episode(first, act):
        place, total = first, 0.0
        if replay_it := act is not greedy:
            replay.start(np.array([place], np.float32))
        for _ in range(20):
            action = float(act(torch.tensor([[place]])))
            place = min(max(place + 0.2 * action, -1.0), 1.0)
            reward = float(abs(place - 0.5) < 0.1)
            total += reward
            if replay_it:
                replay.add(np.array([place], np.float32), np.float32([action]), reward, False)
        return total

    def greedy(seen):
        return drqv2.act(seen, step, deterministic=True)

    def explore(seen):
        return drqv2.act(seen, step)

    for step in range(0, 1000, 20):
        episode(float(torch.rand((), generator=generator)) * 2 - 1, explore)
        for _ in range(10 if step >= 200 else 0):
            drqv2.update(replay.sample(settings.batch, generator), step)
    assert np.mean([episode(first, greedy) for first in (-1.0, -0.5, 0.0, 1.0)]) > 12
