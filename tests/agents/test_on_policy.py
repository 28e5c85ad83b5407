"""Learning from rollouts, on the real environment with few simulations."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from tests.parts import actions, reader
from tests.processes import assert_equal

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex import E3B, RND, BonusScale, Disagreement, MIMEx, NoBonus, Rewards
from mimex.agents.encoders import VectorEncoder
from mimex.agents.on_policy import LoopSettings
from mimex.agents.ppo import PPO, PPOAgent, PPOSettings
from mimex.contracts import Step
from mimex.data.rollout import Rollout
from mimex.track.clock import Clock
from mimex.train.episodes import Episodes
from mimex.train.novelty import Novelty
from mimex.train.runner import Training

ENVS, STEPS, HORIZON = 4, 8, 10_000


def training(bonus=None, *, loop=None, ppo=None, episode_steps=5, scale=None):
    torch.manual_seed(0)
    env = gymnasium.make_vec(
        "mimex/FrankaReach-v0", num_envs=ENVS, threads=1, episode_steps=episode_steps
    )
    settings = ppo or PPOSettings(epochs=2, minibatches=2, normalize_observations=True)
    loop = loop or LoopSettings(rollout_steps=STEPS, bonus_minibatch=16)
    encoder = VectorEncoder(reader(27), normalize=settings.normalize_observations)
    agent = PPOAgent(
        PPO(encoder, actions(9), settings, seed=1),
        bonus or NoBonus(),
        scale or BonusScale(0.5, normalize=False),
        loop,
        num_envs=ENVS,
        horizon=HORIZON,
        seed=3,
        clock=Clock(),
    )
    callbacks = {"episodes": Episodes(ENVS, remember=100), "novelty": Novelty(env)}
    stagger = agent.generator if loop.stagger else None
    return Training(env, agent, callbacks, seed=2, stagger=stagger, clock=agent.clock)


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.agent.algorithm.network.parameters()])


def warm_up(run):
    """Plays until there is something to learn from."""
    run._begin(run.seed)
    while run.agent.warming_up:
        assert run.advance(10**9) is None
    return run


def collect(run):
    """Plays a rollout, and stops before it is learned from; the actions ``(M, N, A)`` received."""
    agent, received = run.agent, []
    for _ in range(STEPS):
        chosen = agent.act(run.observation, run.step)
        received.append(torch.as_tensor(chosen))
        made = Step(run.observation, chosen, *run.env.step(chosen))
        agent.observe(made)
        for callback in run.callbacks.values():
            callback.step(made)
        run.observation = made.next_observation
    agent._filled = 0
    return torch.stack(received)


def small_rollout():
    """Three steps of two environments: the first is truncated after step 0, the second
    terminated after step 1."""
    rollout = Rollout(3, 2, {"vector": ((2,), torch.float32)}, action_dim=3, feature_dim=2)
    rollout.observations["vector"][:] = torch.randn(4, 2, 2)
    rollout.rewards[:] = torch.randn(3, 2)
    rollout.truncated[0, 0] = rollout.terminated[1, 1] = True
    for _ in range(2):
        final = torch.randn(1, 2)
        rollout.put_finals({"vector": final}, final)
    return rollout


def advantages_by_hand(agent, rollout, reward):
    """One number at a time, straight from the definition."""
    value = agent.values
    finals = rollout.finals()["vector"]
    out = np.zeros((3, 2))
    for env in range(2):
        carried = 0.0
        for t in (2, 1, 0):
            after = rollout.observations["vector"][t + 1, env]
            if rollout.truncated[t, env]:
                after = finals[0]
            now = rollout.observations["vector"][t, env]
            next_value = 0.0
            if not rollout.terminated[t, env]:
                next_value = value({"vector": after[None]})[0, 0].item()
            if rollout.ended[t, env]:
                carried = 0.0
            surprise = reward[t, env].item() + 0.9 * next_value
            surprise -= value({"vector": now[None]})[0, 0].item()
            carried = out[t, env] = surprise + 0.9 * 0.8 * carried
    return out


def two_number_agent(**settings):
    torch.manual_seed(0)
    return PPO(
        VectorEncoder(reader(2)), actions(3), PPOSettings(discount=0.9, gae_lambda=0.8, **settings)
    )


def test_the_bonus_reaches_the_advantages_as_computed_by_hand():
    agent, rollout = two_number_agent(), small_rollout()
    scale = BonusScale(0.5, normalize=False)
    raw = torch.rand(3, 2)
    perturbed = raw.clone()
    perturbed[1, 0] += 2.0
    found = []
    for bonus in (raw, perturbed):
        rewards = scale.combine(rollout.rewards, bonus)
        batch = agent.batch(rollout, rewards, 0.5)
        expected = advantages_by_hand(agent, rollout, rollout.rewards + 0.5 * bonus)
        np.testing.assert_allclose(batch.advantages.view(3, 2), expected, atol=1e-5)
        found.append(batch.advantages.view(3, 2))
    # Step 0 of that environment was truncated, so that only step 1 is concerned.
    change = torch.zeros(3, 2)
    change[1, 0] = 1.0
    torch.testing.assert_close(found[1] - found[0], change, atol=1e-5, rtol=0)


def test_the_bonus_changes_what_the_policy_learns():
    results = []
    for more in (0.0, 2.0):
        agent, rollout = two_number_agent(epochs=1, minibatches=1), small_rollout()
        torch.manual_seed(5)
        bonus = torch.rand(3, 2)
        bonus[1, 0] += more
        rewards = Rewards(rollout.rewards + bonus, rollout.rewards, bonus)
        agent.update(agent.batch(rollout, rewards, 1.0))
        results.append(torch.cat([p.detach().flatten() for p in agent.actor.parameters()]))
    assert not torch.equal(*results)


def test_with_two_heads_the_bonus_runs_on_across_episodes():
    agent, rollout = two_number_agent(two_heads=True, intrinsic_discount=0.5), small_rollout()
    bonus = torch.rand(3, 2)
    rewards = Rewards(rollout.rewards + 0.5 * bonus, rollout.rewards, 0.5 * bonus)
    batch = agent.batch(rollout, rewards, beta=0.5)
    values = agent.values({"vector": rollout.observations["vector"].flatten(0, 1)})
    values = values.view(4, 2, 2)
    carried = torch.zeros(2)
    for t in (2, 1, 0):
        surprise = bonus[t] + 0.5 * values[t + 1, :, 1] - values[t, :, 1]
        carried = surprise + 0.5 * 0.8 * carried  # nothing ends here
        torch.testing.assert_close(batch.returns.view(3, 2, 2)[t, :, 1] - values[t, :, 1], carried)
    extrinsic = advantages_by_hand(agent, rollout, rollout.rewards)
    np.testing.assert_allclose(batch.advantages.view(3, 2, 2)[..., 0], extrinsic, atol=1e-5)
    # Beta weighs the bonus's advantages, not its returns.
    torch.testing.assert_close(batch.advantages, batch.returns - batch.values)
    # The survival bonus ends with the episode: it is in the extrinsic stream.
    survival = torch.full((3, 2), 2.0)
    more = Rewards(rewards.total + survival, rewards.extrinsic, rewards.intrinsic + survival)
    more.survival = survival
    surviving = agent.batch(rollout, more, beta=0.5).advantages.view(3, 2, 2)
    extrinsic = advantages_by_hand(agent, rollout, rollout.rewards + survival)
    np.testing.assert_allclose(surviving[..., 0], extrinsic, atol=1e-5)
    torch.testing.assert_close(surviving[..., 1], batch.advantages.view(3, 2, 2)[..., 1])


@pytest.mark.parametrize(("best", "per_head"), [(0.0, False), (1e-3, True)])
def test_two_streams_have_units_of_their_own_only_where_the_task_pays(best, per_head, monkeypatch):
    """Costs alone would else be blown up to the size of the bonus, and outweigh it."""
    ppo = PPOSettings(epochs=1, minibatches=1, two_heads=True, normalize_values=True)
    run = warm_up(training(bonus=RND(), ppo=ppo))
    collect(run)
    agent = run.agent
    agent.rollout.rewards.fill_(-0.01)
    agent.rollout.rewards[1, 2] = best
    seen = []
    combined = agent.algorithm.return_scale.combined

    def record(advantages, weights, *, per_head):
        seen.append((combined(advantages, weights, per_head=per_head), advantages))
        return seen[-1][0]

    monkeypatch.setattr(agent.algorithm.return_scale, "combined", record)
    agent._filled = STEPS
    agent.update(run.step)
    ((found, advantages),) = seen
    units = agent.algorithm.return_scale.std.float() if per_head else torch.ones(2)
    torch.testing.assert_close(found, advantages @ (torch.tensor([1.0, 0.5]) / units))


def test_a_rollout_holds_what_the_environment_said():
    run = training()
    warm_up(run)
    state = run.env.unwrapped.get_state()
    first = run.observation.copy()
    collect(run)
    rollout = run.agent.rollout
    run.env.unwrapped.set_state(state)
    finals = []
    normalizer = run.agent.algorithm.encoder.normalizer
    torch.testing.assert_close(rollout.features[0], normalizer(torch.from_numpy(first)))
    for t in range(STEPS):
        observation, reward, terminated, truncated, info = run.env.step(rollout.actions[t].numpy())
        torch.testing.assert_close(
            rollout.features[t + 1], normalizer(torch.from_numpy(observation))
        )
        np.testing.assert_allclose(rollout.rewards[t], reward, rtol=1e-6)
        assert np.array_equal(rollout.terminated[t], terminated)
        assert np.array_equal(rollout.truncated[t], truncated)
        if (terminated | truncated).any():
            finals.append(np.stack(list(info["final_obs"][terminated | truncated])))
    expected = normalizer(torch.from_numpy(np.concatenate(finals)))
    torch.testing.assert_close(rollout.final_features(), expected)
    assert rollout.truncated.any()


def test_the_warm_up_gives_statistics_and_begins_anew():
    run = training()
    before = weights(run)
    warm_up(run)
    assert run.step == ENVS * STEPS
    assert torch.equal(weights(run), before)
    assert run.callbacks["episodes"].metrics() == {}
    seen = run.agent.algorithm.encoder.normalizer.state_dict()
    torch.testing.assert_close(seen["mean"], seen["seen"]["mean"].float())


def test_staggered_episodes_begin_at_different_ages():
    loop = LoopSettings(rollout_steps=STEPS, stagger=True)
    run = training(loop=loop, episode_steps=200)
    warm_up(run)
    ages = run.env.unwrapped.get_state()["steps"]
    assert len(set(ages.tolist())) == ENVS
    assert 0 <= ages.min() <= ages.max() < 200
    np.testing.assert_array_equal(run.env.unwrapped.observe(), run.observation)


@pytest.mark.parametrize("ends_at", ["observation", "next"])
def test_every_step_is_scored_whatever_share_is_learned_from(ends_at):
    loop = LoopSettings(
        rollout_steps=STEPS, bonus_minibatch=8, train_fraction=0.25, ends_at=ends_at
    )
    run = training(RND(27, seed=1), loop=loop)
    fresh = RND(27, seed=1)
    warm_up(run)
    collect(run)
    index = run.agent.build_windows()
    raw, metrics = run.agent.score(index)
    assert run.agent.bonus.steps == 1  # a quarter of 32 windows is one minibatch of 8
    torch.testing.assert_close(raw.flatten(), fresh.reward(index[torch.arange(ENVS * STEPS)]))
    assert metrics["bonus/probe"] > 0


def test_the_bonus_sees_the_actions_that_environments_receive_and_ppo_its_samples():
    loop = LoopSettings(rollout_steps=STEPS, ends_at="next")
    run = warm_up(training(MIMEx(27, action_dim=9), loop=loop))
    received = collect(run)
    sampled = run.agent.rollout.actions.clone()
    index = run.agent.build_windows()
    assert (sampled.abs() > 1).float().mean() > 0.2  # with a std of 1, a third
    assert torch.equal(index[:].actions[:, -1], received.flatten(0, 1))
    # The log-probabilities are those of the samples.
    stored = {part: v[:-1].flatten(0, 1) for part, v in run.agent.rollout.observations.items()}
    algorithm = run.agent.algorithm
    outputs = algorithm.actor(algorithm.encoder.policy_input(stored, algorithm.features(stored)))
    expected = algorithm.distribution.log_prob(outputs, sampled.flatten(0, 1)).view(STEPS, ENVS)
    torch.testing.assert_close(run.agent.rollout.log_probs, expected)
    assert torch.equal(run.agent.rollout.actions, sampled)


def test_updates_report_what_tells_whether_a_bonus_works():
    run = training(MIMEx(27, seed=1))
    rows = list(run.train(4 * ENVS * STEPS))
    assert len(rows) == 3  # the warm-up's steps count
    names = "train/success train/return bonus/mean bonus/beta bonus/share bonus/probe "
    names += "explore/coverage ppo/std ppo/policy_loss ppo/value_loss time/steps_per_second "
    names += "time/simulation time/windows time/bonus time/learning"
    assert set(names.split()) <= set(rows[-1])
    assert 0 < rows[-1]["bonus/share"] < 1
    assert rows[0]["explore/coverage"] <= rows[-1]["explore/coverage"] < 0.1


@pytest.mark.parametrize("ends_at", ["observation", "next"])
def test_an_episodic_bonus_sees_every_step_of_an_episode_over_the_border_of_rollouts(ends_at):
    loop = LoopSettings(rollout_steps=STEPS, bonus_minibatch=16, ends_at=ends_at)
    bonus = E3B(27, 9, embed_dim=4, lr=1e-12)  # features that stay as they are
    ppo = PPOSettings(epochs=1, minibatches=1, normalize_observations=False)
    run = training(bonus, loop=loop, ppo=ppo, episode_steps=13)  # 8 steps a rollout
    run._begin(run.seed)
    visited = np.zeros((ENVS, 4, 4))
    age = np.zeros(ENVS, int)
    for _ in range(4):
        while run.advance(10**9) is None:
            pass
        rollout, raw = run.agent.rollout, run.agent.scored().bonus.reshape(STEPS, ENVS)
        led_to, finals = rollout.features[1:].clone(), iter(rollout.final_features())
        for t, env in rollout.ended.nonzero().tolist():
            led_to[t, env] = next(finals)
        seen = led_to if ends_at == "next" else rollout.features[:-1]
        phi = bonus.embed(seen).detach().double().numpy()
        came_from = bonus.embed(rollout.features[:-1]).detach().double().numpy()
        for t in range(STEPS):
            for env in range(ENVS):
                if age[env] == 0:
                    visited[env] = np.eye(4) * bonus.ridge
                    if ends_at == "next":  # the first observation is seen, and not rewarded
                        visited[env] += np.outer(came_from[t, env], came_from[t, env])
                expected = phi[t, env] @ np.linalg.inv(visited[env]) @ phi[t, env]
                if age[env] == 0 and ends_at == "observation":
                    expected = 0.0
                assert raw[t, env] == pytest.approx(expected, rel=2e-3)
                visited[env] += np.outer(phi[t, env], phi[t, env])
                age[env] = 0 if rollout.ended[t, env] else age[env] + 1


@pytest.mark.parametrize(
    "bonus", [MIMEx, RND, partial(Disagreement, action_dim=9), partial(E3B, action_dim=9)]
)
def test_a_saved_run_goes_on_exactly(bonus):
    straight, first = training(bonus(27, seed=1)), training(bonus(27, seed=1))
    total = 6 * ENVS * STEPS
    rows = list(straight.train(total))
    halfway = first.train(total)
    again = [next(halfway), next(halfway)]
    resumed = training(bonus(27, seed=1))
    resumed.load_state_dict(first.state_dict())
    again += resumed.train(total)
    assert torch.equal(weights(straight), weights(resumed))
    for ours, theirs in zip(rows, again, strict=True):
        for name in ours.keys() - {n for n in ours if n.startswith("time/")}:
            assert ours[name] == theirs[name], name


@pytest.mark.parametrize("ends_at", ["observation", "next"])
def test_the_map_shows_the_bonus_where_the_windows_end(ends_at, monkeypatch):
    loop = LoopSettings(rollout_steps=STEPS, bonus_minibatch=16, ends_at=ends_at)
    run = training(RND(27, seed=1), loop=loop)
    warm_up(run)
    places = [run.env.unwrapped.positions()]
    ended, step = [], run.env.step

    def watched(chosen):
        made = step(chosen)
        places.append(run.env.unwrapped.positions())
        ended.append(made[2] | made[3])
        return made

    monkeypatch.setattr(run.env, "step", watched)
    while run.advance(10**9) is None:
        pass
    raw = run.agent.scored().bonus
    # What a step that ended its episode led to was reset away before anybody could look.
    counted = ~np.stack(ended) if ends_at == "next" else np.ones(raw.shape, bool)
    assert counted.all() == (ends_at == "observation")
    where = np.stack(places)[1:] if ends_at == "next" else np.stack(places)[:-1]
    above = run.callbacks["novelty"].map.take()[0]
    assert above["visits"].sum() == counted.sum()
    paid = float((above["visits"] * above["bonus"]).sum())
    assert paid == pytest.approx(float(raw[counted].sum()), rel=1e-5)
    cells = np.floor((where[counted][:, :2] - (0.0, -0.6)) / 0.05).astype(int)
    assert set(map(tuple, cells.tolist())) == set(zip(*np.nonzero(above["visits"]), strict=True))


def test_a_resumed_run_records_the_same_maps_and_films(tmp_path):
    total = 6 * ENVS * STEPS
    straight, first = training(MIMEx(27, seed=1)), training(MIMEx(27, seed=1))
    for number, _ in enumerate(straight.train(total)):
        if number == 3:
            straight.record(tmp_path / "straight")
    halfway = first.train(total)
    next(halfway), next(halfway)
    resumed = training(MIMEx(27, seed=1))
    resumed.load_state_dict(first.state_dict())
    continued = resumed.train(total)
    next(continued), next(continued)
    resumed.record(tmp_path / "resumed")
    [one], [other] = ((tmp_path / name / "novelty").glob("*") for name in ("straight", "resumed"))
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="train_fraction is 0"):
        LoopSettings(train_fraction=0.0)
    with pytest.raises(ValueError, match="rollout_steps is 0"):
        LoopSettings(rollout_steps=0)


def test_windows_reach_back_to_observations_as_they_are_encoded_now():
    """The first windows of a rollout hold steps of the one before, normalized by statistics that
    have moved on since."""
    run = training(MIMEx(feature_dim=27), episode_steps=50)
    warm_up(run)
    collect(run)
    run.agent.build_windows()
    before = run.agent.rollout.observations["vector"][-5:-1].clone()
    run.agent.algorithm.encoder.normalizer.sync()
    collect(run)
    window = run.agent.build_windows()[torch.arange(ENVS)]  # of the first step
    assert bool(window.valid.all())
    now = run.agent.algorithm.features({"vector": before.flatten(0, 1)}).view(4, ENVS, 27)
    torch.testing.assert_close(window.features[:, :4], now.transpose(0, 1))


def test_beta_is_logged_as_it_was_paid():
    scale = BonusScale(beta=0.5, schedule="linear", over_steps=10 * ENVS * STEPS)
    run = training(RND(27), scale=scale)
    paid = []
    for _, row in zip(range(3), run.train(10_000), strict=False):
        paid.append(row["bonus/beta"])
    assert paid == pytest.approx([0.5, 0.45, 0.4])


def test_a_rate_with_a_schedule_runs_over_the_horizon_whatever_the_end():
    rates = []
    for end in (10_000, 90_000):
        run = training(ppo=PPOSettings(epochs=1, minibatches=1))
        rates.append([next(run.train(end))["ppo/lr"] for _ in range(3)])
    assert rates[0] == rates[1]
    assert rates[0][2] == pytest.approx(0.5e-3 * (1 + np.cos(np.pi * 2 * ENVS * STEPS / HORIZON)))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_multiplying_all_rewards_changes_nothing_that_is_learned(factor, monkeypatch):
    """The whole loop over several updates: same seed, same curves to within rounding."""
    settings = PPOSettings(
        epochs=2,
        minibatches=2,
        shuffle=True,
        lr_schedule="adaptive",
        normalize_observations=True,
        normalize_values=True,
        clip_per_network=True,
    )
    curves = []
    for unit in (1.0, factor):
        run = training(ppo=settings)
        step = run.env.step

        def scaled(actions, step=step, unit=unit):
            observation, rewards, *rest = step(actions)
            return observation, rewards * unit, *rest

        monkeypatch.setattr(run.env, "step", scaled)
        rows = [row for _, row in zip(range(5), run.train(10_000), strict=False)]
        curves.append(
            [
                [row["ppo/std"], row["ppo/approx_kl"], row["ppo/lr"], row["train/return"] / unit]
                for row in rows
            ]
        )
    np.testing.assert_allclose(curves[0], curves[1], rtol=2e-3)


def test_restarted_episodes_receive_no_bonus_and_teach_it_nothing():
    run = training(RND(27, seed=1))
    fresh = RND(27, seed=1)
    warm_up(run)
    collect(run)
    agent = run.agent
    agent.rollout.restarted[:, 1] = True
    index = agent.build_windows()
    raw, _ = agent.score(index)
    expected = fresh.reward(index[torch.arange(ENVS * STEPS)]).view(STEPS, ENVS)
    assert (raw[:, 1] == 0).all()
    assert agent.bonus.steps == 2  # 24 windows in minibatches of at most 16
    assert (raw[:, [0, 2, 3]] == expected[:, [0, 2, 3]]).any()  # those of the first
    twin = training(RND(27, seed=1))
    warm_up(twin)
    collect(twin)
    twin.agent.rollout.restarted[:, 1] = True
    twin.agent.rollout.features[:, 1] = 100.0  # something that the bonus has never seen
    twin.agent.score(twin.agent.build_windows())
    assert_equal(twin.agent.bonus.state_dict(), agent.bonus.state_dict())


def test_restarted_steps_of_an_episodic_bonus_are_worth_nothing():
    run = training(E3B(27, action_dim=9))
    warm_up(run)
    collect(run)
    run.agent.rollout.restarted[:, 1] = True
    raw, _ = run.agent.score(run.agent.build_windows())
    assert (raw[:, 1] == 0).all()
    assert (raw[:, [0, 2, 3]] > 0).any()
