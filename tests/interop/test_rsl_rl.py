"""The adapter in the real rsl_rl; see the module's docstring for the versions tried."""

import pytest
import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from tests.probe import NotingBonus

from mimex import E3B, ICM, RND, BonusScale, Disagreement, MIMEx, PseudoCount
from mimex.interop.rsl_rl import add_bonus

STEPS, ENVS = 6, 4


class Line(VecEnv):
    """Points on a line; episodes of five steps, of which environment 0's are cut off by time.

    Observations are (environment, episode, step); the last step of an episode is rewarded by 2.
    """

    num_envs, num_actions, max_episode_length, device, cfg = ENVS, 2, 5, "cpu", {}
    clip_actions = 0.5

    def __init__(self):
        self.episode_length_buf = torch.zeros(ENVS, dtype=torch.long)
        self.episode = torch.zeros(ENVS)

    def get_observations(self):
        rows = torch.stack([torch.arange(ENVS), self.episode, self.episode_length_buf], dim=1)
        return TensorDict({"policy": rows.float(), "extra": rows[:, :1] + 7.0}, [ENVS])

    def step(self, actions):
        self.episode_length_buf = self.episode_length_buf + 1
        done = self.episode_length_buf == 5
        rewards = 2.0 * done
        self.episode = self.episode + done
        self.episode_length_buf = self.episode_length_buf * ~done
        outs = done & (torch.arange(ENVS) == 0)
        return self.get_observations(), rewards, done.long(), {"time_outs": outs}


def config():
    network = {"class_name": "rsl_rl.models.MLPModel", "hidden_dims": [8], "activation": "elu"}
    noise = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    return {
        "num_steps_per_env": STEPS,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": noise},
        "critic": network,
        "algorithm": {"class_name": "rsl_rl.algorithms.PPO", "rnd_cfg": None, "gamma": 0.9},
    }


def runner(bonus, log_dir=None, env=None, **options):
    torch.manual_seed(0)
    return OnPolicyRunner(env or Line(), add_bonus(config(), bonus, **options), log_dir)


def weights(made):
    return torch.cat([p.flatten() for p in made.alg.actor.parameters()])


def test_each_step_is_rewarded_before_the_returns():
    bonus = NotingBonus(2, lambda w: 10 + w.features[:, -1, 2], length=3)
    made = runner(bonus, beta=BonusScale(1.0, normalize=False), learn_every=8)
    seen = []
    returns = made.alg.compute_returns

    def note(obs):
        returns(obs)
        storage = made.alg.storage
        seen.append((storage.observations["policy"].clone(), storage.rewards.squeeze(-1).clone()))

    made.alg.compute_returns = note
    made.learn(2)
    (first, _), (second, rewards) = seen
    steps = torch.cat([first, second])[:, 1, 2]
    assert steps.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    # Environment 1: its own reward at the end of an episode and the bonus, no value.
    expected = 10 + second[:, 1, 2] + 2.0 * (second[:, 1, 2] == 4)
    torch.testing.assert_close(rewards[:, 1], expected)
    for window in bonus.windows:
        for features, valid, actions in zip(
            window.features, window.valid, window.actions, strict=True
        ):
            known = features[valid]
            assert len(known[:, :2].unique(dim=0)) == 1  # of one episode
            assert len(known) == min(int(known[-1, 2]) + 1, 3)  # also over the rollout's border
            assert actions.abs().max() <= 0.5  # as the environment executes them
    weighted = made.alg.bonus
    assert (
        weighted.reward_sums["extrinsic"] == 2.0 * 2 * ENVS
    )  # values at time limits are no reward
    assert weighted.scale.steps == 2 * STEPS * ENVS


def test_the_policy_moves_with_the_bonus():
    def trained(factor):
        made = runner(NotingBonus(2, lambda w: factor * w.features[:, -1, 2], length=1))
        made.learn(2)
        return weights(made)

    assert torch.equal(trained(0.0), trained(0.0))
    assert not torch.equal(trained(0.0), trained(1.0))


@pytest.mark.parametrize("make", [MIMEx, RND, ICM, PseudoCount, Disagreement, E3B])
def test_every_bonus_learns_is_saved_and_resumed(make, tmp_path):
    made = runner(make(), learn_every=8, view=["policy", "extra"])
    made.learn(2)
    bonus = made.alg.bonus.bonus
    assert bonus.steps == 2 * 3
    assert bonus.feature_dim == 4
    made.save(str(tmp_path / "model.pt"))
    again = runner(make(seed=5), learn_every=8, view=["policy", "extra"])
    again.load(str(tmp_path / "model.pt"))
    assert again.current_learning_iteration == 1
    assert torch.equal(weights(again), weights(made))
    assert again.alg.bonus.scale.state_dict() == made.alg.bonus.scale.state_dict()
    both = []
    for one in (made, again):
        one.env.__init__()  # the same new episodes
        one.alg.bonus.forget_episodes()
        torch.manual_seed(1)
        one.learn(2)
        both.append((weights(one), one.alg.bonus.reward_sums))
    assert torch.equal(both[0][0], both[1][0])
    assert both[0][1] == both[1][1]


def test_the_logger_gets_the_bonus_and_the_folder_a_checkpoint_of_it(tmp_path):
    made = runner(RND(), str(tmp_path))
    logged, log = {}, made.logger.log

    def note(**values):
        logged.update(values["loss_dict"])
        log(**values)

    made.logger.log = note
    made.learn(1)
    assert {"bonus/mean", "bonus/reward", "bonus/share", "bonus/beta"} <= set(logged)
    assert 0 < logged["bonus/share"] < 1
    assert made.alg.bonus.bonus.feature_dim == 3  # the actor's observation group
    again = runner(RND())
    again.load(str(tmp_path / "model_0.pt"))
    assert again.alg.bonus.bonus.steps == made.alg.bonus.bonus.steps == 1


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="ends_at='next' needs final observations"):
        add_bonus(config(), RND(), ends_at="next")
    both = config()
    both["algorithm"]["rnd_cfg"] = {"weight": 1.0}
    with pytest.raises(ValueError, match="has rnd_cfg"):
        add_bonus(both, RND())
    with pytest.raises(ValueError, match=r"view='state'.*'extra'"):
        runner(RND(), view="state")
    plain = OnPolicyRunner(Line(), config())
    plain.save(str(tmp_path / "plain.pt"))
    made = runner(RND())
    with pytest.raises(ValueError, match="no bonus"):
        made.load(str(tmp_path / "plain.pt"))
    made.load(str(tmp_path / "plain.pt"), load_cfg={"actor": True})
    assert torch.equal(weights(made), weights(plain))
