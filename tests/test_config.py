import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

from mimex import RND, Disagreement, MIMEx, PseudoCount
from mimex.agents.drqv2 import PUBLISHED
from mimex.agents.factory import make_bonus
from mimex.agents.ppo import PPOSettings
from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.masks import FeatureMask, TimeMask
from mimex.bonus.size import COMPACT, PAPER, RELEASED, AutoencoderSize
from mimex.commands.build import make_training
from mimex.config import TrainConfig, VisionSettings, parse, preset
from mimex.config.declared import settings_of
from mimex.config.families.base import merged
from mimex.config.families.dmc import NOISE_STEPS
from mimex.envs.dmc_tasks import NAMES
from mimex.envs.settings import TASKS


def test_settings_survive_json():
    config = replace(
        preset("cpu", task="KukaPick"),
        out=Path("somewhere"),
        vision=VisionSettings(checkpoint=Path("w")),
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_paper_preset_has_the_published_numbers():
    """The constants of docs/ppo.md, of MVP's and MIMEx's released files."""
    paper = preset("paper", task="FrankaReach")
    assert (paper.envs, preset("paper", "pixels").envs, paper.loop.rollout_steps) == (256, 512, 32)
    assert paper.ppo == PPOSettings(
        lr=1e-3,
        lr_schedule="cosine",
        epochs=10,
        minibatches=4,
        shuffle=False,
        clip=0.1,
        value_coef=2.0,
        entropy_coef=0.0,
        discount=0.99,
        gae_lambda=0.95,
        normalize_values=False,
        grad_norm=1.0,
        clip_per_network=False,
        hidden=(256, 128, 64),
        activation="selu",
        value_gain=1.0,
        normalize_observations=False,
        observation_clip=5.0,
        initial_std=1.0,
        min_std=0.0,
        two_heads=False,
    )
    assert (paper.scale.beta, paper.scale.normalize) == (0.05, False)
    assert paper.restarts.share == paper.ppo.min_std == 0
    assert paper.bonus_view == ()
    assert (paper.mimex.length, paper.mimex.mask_ratio, paper.mimex.padding) == (5, 0.7, "zeros")
    assert (paper.mimex.lr, paper.rnd.lr, paper.icm.lr) == (1e-4, 1e-3, 1e-3)
    assert not paper.mimex.normalize
    assert not paper.mimex.actions
    rollout = paper.envs * paper.loop.rollout_steps
    assert paper.loop.train_fraction == 1.0
    assert paper.loop.bonus_minibatch >= rollout, "one optimizer step of the bonus per rollout"
    assert paper.loop.ends_at == "observation"
    assert paper.mimex.size == AutoencoderSize(class_token=True)
    assert not paper.loop.stagger


@pytest.mark.parametrize(
    ("task", "observation", "lr"),
    [
        ("FrankaPick", "oracle", 1e-3),
        ("KukaPick", "oracle", 5e-4),
        ("FrankaMove", "oracle", 1e-3),
        ("FrankaMove", "pixels", 1.5e-3),
        ("KukaReach", "pixels", 1.5e-3),
        ("KukaMove", "pixels", 5e-4),
    ],
)
def test_the_paper_preset_has_each_tasks_learning_rate(task, observation, lr):
    arguments = ["--preset", "paper", "--observation", observation, task]
    assert parse(arguments).ppo.lr == lr


@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_the_cpu_preset_is_one_for_all_tasks_but_for_what_the_bonus_sees(reward):
    first, *others = (preset("cpu", task=task, reward=reward) for task in TASKS)
    same = {"task": first.task, "bonus_view": first.bonus_view}
    assert all(replace(other, **same) == first for other in others)


def test_sparse_reward_from_state_has_restarts_a_std_floor_and_a_view_of_the_object():
    sparse = parse(["FrankaPick", "--bonus", "mimex"])
    assert sparse.bonus_view == ("object",)
    assert parse(["KukaReach"]).bonus_view == ("hand",)
    assert (sparse.restarts.share, sparse.ppo.min_std) == (0.25, 0.45)
    assert (sparse.mimex.mask_type, sparse.mimex.mask_ratio) == ("time", 0.7)
    dense = parse(["FrankaPick", "--reward", "dense"])
    joints = parse(["FrankaPick", "--observation", "robot"])
    for other in (dense, joints):
        assert (other.restarts.share, other.ppo.min_std, other.bonus_view) == (0.0, 0.0, ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "FrankaPik"}, "did you mean 'FrankaPick'"),
        ({"bonus": "mimix"}, "--bonus is 'mimix'.*did you mean 'mimex'"),
        ({"reward": "spars"}, "did you mean 'sparse'"),
        ({"observation": "pixel"}, "did you mean 'pixels'"),
        ({"steps": 0}, "--steps is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"device": "mps"}, "--device is 'mps'.*float64.*use --device cpu"),
        ({"device": "cude"}, "did you mean 'cuda'"),
        ({"vision": VisionSettings(encoder="vitt")}, "did you mean 'vit'"),
    ],
)
def test_what_makes_no_run_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        replace(preset("cpu", task="FrankaReach"), **change).checked()


@pytest.mark.parametrize(("cuda", "found"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_cuda_or_the_cpu_also_on_a_mac(cuda, found, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr("torch.mps.is_available", lambda: True)
    config = preset("cpu", task="FrankaReach")
    assert replace(config, device="auto").device_name == found
    assert config.device_name == "cpu"
    if not cuda:
        with pytest.raises(ValueError, match="--device is cuda, but this machine has none"):
            _ = replace(config, device="cuda").device_name


def test_an_unknown_setting_in_a_file_is_named():
    data = preset("cpu", task="FrankaReach").to_dict()
    data["ppo"]["epoch"] = data["ppo"].pop("epochs")
    with pytest.raises(ValueError, match=r"'epoch'.*did you mean 'epochs'"):
        TrainConfig.from_dict(data)


def test_every_setting_of_the_command_line_is_explained(capsys):
    with pytest.raises(SystemExit):
        tyro.cli(TrainConfig, args=["--help"])
    text = capsys.readouterr().out
    for words in ("--ppo.epochs", "Epochs per rollout", "--mimex.mask-ratio", "--scale.beta"):
        assert words in text


def help_of(*arguments, capsys):
    with pytest.raises(SystemExit) as left:
        parse(list(arguments))
    assert left.value.code == 0
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize(
    ("arguments", "shown", "hidden"),
    [
        (
            ("FrankaPick",),
            ("--reward", "--world.engine", "--world.lift", "--help-all"),
            (
                "--ppo.adam-eps",
                "--restarts.reach",
                "--scale.",
                "--rnd.",
                "--mimex.",
                "--drqv2.",
                "--gym.",
                "--replay.",
            ),
        ),
        (
            ("gym/CartPole-v1", "--bonus", "rnd"),
            ("--rnd.lr", "--scale.beta", "--gym.arguments", "--envs INT", "(default: 16)"),
            ("--reward", "--observation", "--mimex.", "--world.", "--suite."),
        ),
        (
            ("dmc/cartpole_swingup", "--bonus=mimex"),
            ("--drqv2.batch", "--mimex.mask-ratio", "--suite.stack", "--observation"),
            ("--ppo.", "--loop.", "--rnd.", "--reward", "--drqv2.tau"),
        ),
    ],
)
def test_help_shows_what_a_user_of_the_task_needs(arguments, shown, hidden, capsys):
    text = help_of(*arguments, "--help", capsys=capsys)
    assert [words for words in shown if words not in text] == []
    assert [words for words in hidden if words in text] == []
    assert "(default: 0)" in text
    every = help_of(*arguments, "--help-all", capsys=capsys)
    assert [words for words in hidden if words not in every] == []


def test_help_is_short_and_has_the_tasks_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for task, steps in (("FrankaPick", "2000000"), ("gym/CartPole-v1", "300000")):
        with pytest.raises(SystemExit):
            parse([task, "-h"])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) < 120
        assert any(steps in line for line in lines)


def test_help_for_a_bonus_that_does_not_exist_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'mimex'"):
        parse(["FrankaPick", "--bonus", "mimx", "--help"])


def test_the_paper_preset_of_the_suite_is_the_release():
    paper = preset("paper", task="dmc/cartpole_swingup_sparse")
    assert (paper.agent, paper.observation, paper.envs) == ("drqv2", "pixels", 1)
    agent = paper.drqv2
    assert (agent.batch, agent.n_step, agent.hidden, agent.lr) == (1024, 1, 1024, 1e-4)
    assert (agent.features, agent.std_steps) == ("encoder", 500_000)
    suite = paper.suite
    assert (suite.action_repeat, suite.image_size, suite.stack) == (2, 84, 3)
    assert suite.quality == "published"
    assert (paper.mimex.padding, paper.mimex.normalize) == ("zeros", False)
    assert (paper.eval.every, paper.eval.episodes) == (10_000, 10)
    assert paper.off_policy.ends_at == "observation"
    assert paper.replay.run == 1


def test_noise_falls_more_slowly_in_what_drqv2_calls_medium_and_hard():
    for task, steps in (("quadruped_run", 500_000), ("humanoid_run", 2_000_000)):
        assert preset("paper", task=f"dmc/{task}").drqv2.std_steps == steps
    assert set(NOISE_STEPS) <= set(NAMES)


def test_walkers_and_humanoids_have_settings_of_their_own_as_published():
    walker = preset("cpu", "pixels", "dmc/walker_run").drqv2
    assert (walker.n_step, walker.batch, walker.std_steps) == (1, 512, 500_000)
    humanoid = preset("cpu", "pixels", "dmc/humanoid_walk").drqv2
    assert (humanoid.lr, humanoid.trunk, humanoid.std_steps) == (8e-5, 100, 2_000_000)


def test_from_pixels_the_cpu_preset_is_drqv2_as_published():
    assert preset("cpu", "pixels", "dmc/cartpole_balance").drqv2 == PUBLISHED


def test_the_small_preset_is_smaller_than_drqv2_as_published_in_all_that_costs():
    small = preset("small", task="dmc/cartpole_swingup_sparse")
    assert small.suite.quality == "fast"
    assert small.suite.image_size < preset("paper", task=small.task).suite.image_size
    for name in ("batch", "filters", "hidden"):
        assert getattr(small.drqv2, name) < getattr(PUBLISHED, name)


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("FrankaReach", {"ppo": "cpu", "drqv2": "cpu"}),
        ("dmc/cartpole_swingup", {"ppo": "cpu", "drqv2": "cpu"}),
        ("dmc/cartpole_swingup", {"drqv2": "small"}),
        ("gym/Pendulum-v1", {"ppo": "cpu", "drqv2": "cpu"}),
    ],
)
def test_from_state_and_small_images_every_agent_has_the_default_bonuses(task, names):
    for agent, name in names.items():
        ours = preset(name, None, task, agent)
        assert ours.mimex.normalize == (agent == "drqv2")  # PPO normalizes what it sees itself
        theirs = MIMEx(), RND(), PseudoCount(), Disagreement()
        mines = ours.mimex, ours.rnd, ours.pseudocount, ours.disagreement
        for mine, its in zip(mines, theirs, strict=True):
            assert mine.lr == its.lr == 3e-3
        assert ours.mimex.size == MIMEx().size == COMPACT
        if agent == "drqv2" or task != "FrankaReach":
            assert (ours.mimex.mask_type, ours.mimex.mask_ratio) == ("feature", 0.8)


@pytest.mark.parametrize(
    ("name", "observation", "size"),
    [("cpu", "pixels", PAPER), ("paper", "pixels", RELEASED), ("paper", "state", RELEASED)],
)
def test_drqv2_from_images_and_as_published_has_the_published_bonuses(name, observation, size):
    chosen = preset(name, observation, "dmc/cartpole_swingup")
    assert (chosen.mimex.size, chosen.mimex.lr, chosen.rnd.lr) == (size, 1e-4, 1e-3)
    assert chosen.pseudocount.lr == chosen.disagreement.lr == 1e-3
    assert (chosen.mimex.mask_type, chosen.mimex.mask_ratio) == ("time", 0.7)


def test_a_suites_state_is_its_own_feature_normalized():
    state = preset("cpu", task="dmc/cartpole_swingup")
    assert state.observation == "state"
    assert state.drqv2.features == "encoder"
    bonuses = (state.mimex, state.rnd, state.icm, state.pseudocount)
    assert all(bonus.normalize for bonus in bonuses)


@pytest.mark.parametrize(
    ("arguments", "agent", "observation"),
    [
        (["FrankaReach"], "ppo", "oracle"),
        (["FrankaReach", "--out", "dmc/cartpole_swingup"], "ppo", "oracle"),
        (["dmc/cartpole_swingup"], "drqv2", "state"),
        (["--bonus", "mimex", "dmc/cartpole_swingup", "--preset=paper"], "drqv2", "pixels"),
        (["dmc/cartpole_swingup", "--observation", "pixels"], "drqv2", "pixels"),
        (["dmc/cartpole_swingup", "--preset", "small"], "drqv2", "pixels"),
        (["dmc/cartpole_swingup", "--agent", "ppo"], "ppo", "state"),
        (["FrankaReach", "--agent=drqv2"], "drqv2", "oracle"),
        (["gym/CartPole-v1"], "ppo", "task"),
        (["gym/Pendulum-v1", "--agent", "drqv2"], "drqv2", "task"),
    ],
)
def test_defaults_follow_the_task(arguments, agent, observation):
    config = parse(arguments).checked()
    assert (config.agent, config.observation) == (agent, observation)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dmc/cartpole_swingupp"], "did you mean 'dmc/cartpole_swingup'"),
        (["cartpole_swingup"], "did you mean 'dmc/cartpole_swingup'"),
        (["dmc/cartpole_swingup", "--observation", "oracle"], "one of state, pixels"),
        (
            ["dmc/cartpole_swingup", "--agent", "ppo", "--preset", "paper"],
            "ppo on dmc/.*drqv2",
        ),
        (
            ["FrankaReach", "--agent", "drqv2", "--preset", "paper"],
            "drqv2 on Franka.*only ppo",
        ),
        (
            ["gym/CartPole-v1", "--preset", "paper"],
            "ppo on gym/CartPole-v1: use --preset cpu",
        ),
        (["gym/CartPole-v1", "--preset", "small"], "'small', which does not support ppo on gym"),
        (["FrankaReach", "--preset", "small"], "'small', which does not support ppo on Fr"),
        (
            ["dmc/cartpole_swingup", "--agent=ppo", "--preset=small"],
            "ppo on dmc/.*only drqv2",
        ),
        (["dmc/cartpole_swingup", "--preset=small", "--observation=state"], "needs images"),
        (["gym/CartPol-v1"], "did you mean 'gym/CartPole-v1'"),
        (["CartPole-v1"], "did you mean 'gym/CartPole-v1'"),
        (["gym/CartPole-v1", "--reward", "dense"], "has its own reward"),
        (["gym/CartPole-v1", "--observation", "pixels"], "--observation is 'pixels'"),
        (["gym/CartPole-v1", "--gym.episode-steps", "0"], "--gym.episode-steps is 0"),
        (["gym/CartPole-v1", "--gym.arguments", "{size}"], "--gym.arguments is not JSON"),
        (["gym/CartPole-v1", "--gym.arguments", "3"], "must be a JSON object"),
        (["gym/ALE/NoSuchGame-v5"], r"pip install 'gymnasium\[atari\]'|task is"),
        (["gym/no_such_module:It-v0"], "needs the module no_such_module"),
        (["gym/.relative:It-v0"], r"needs the module \.relative, which cannot be imported \(Type"),
        (["gym/"], "task is 'gym/'"),
        (["dmc/cartpole_swingup", "--curriculum", "dense"], "--curriculum needs a task whose"),
        (["FrankaPick", "--curriculum", "dense", "spars"], "--curriculum is 'spars'.*'sparse'"),
        (["FrankaPick", "--curriculum", "dense", "--reward", "sparse"], "ends with 'dense'"),
        (["FrankaPick", "--curriculum-success", "0"], "--curriculum-success is 0"),
        (["FrankaReach", "--agent", "dqn"], "--agent is 'dqn'"),
        (["dmc/cartpole_swingup", "--reward", "dense"], "has its own reward"),
        (["dmc/cartpole_swingup", "--suite.quality", "quick"], "--suite.quality is 'quick'"),
    ],
)
def test_what_does_not_go_together_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        parse(arguments).checked()


def test_folders_have_no_slash_in_their_names():
    config = parse(["dmc/cartpole_swingup", "--bonus", "rnd", "--seed", "3"])
    assert config.folder == Path("runs/dmc-cartpole_swingup-state-rnd-3")


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["gym/CartPole-v1"], "gym-CartPole-v1-ppo-none-0"),
        (["gym/my.module:Own-v0", "--agent", "drqv2"], "gym-my.module-Own-v0-drqv2-none-0"),
        (["dmc/cartpole_swingup", "--agent", "ppo"], "dmc-cartpole_swingup-state-ppo-none-0"),
        (["FrankaPick", "--agent", "drqv2"], "FrankaPick-sparse-drqv2-none-0"),
        (["FrankaPick", "--curriculum", "dense", "sparse"], "FrankaPick-dense-sparse-none-0"),
    ],
)
def test_runs_that_differ_have_folders_that_do(arguments, folder):
    assert parse(arguments).folder == Path("runs") / folder


def test_a_curriculum_is_evaluated_by_its_last_reward():
    config = parse(["FrankaPick", "--curriculum", "dense", "sparse", "sparser"]).checked()
    assert (config.reward, config.curriculum) == ("sparser", ("dense", "sparse", "sparser"))


def test_an_agent_other_than_the_default_has_its_own_settings():
    usual, other = (
        preset("cpu", task="FrankaReach"),
        preset("cpu", task="FrankaReach", agent="drqv2"),
    )
    assert other.envs < usual.envs
    assert other.mimex.normalize  # the replay buffer holds numbers in their own units
    assert not usual.mimex.normalize


@pytest.mark.parametrize("name", BONUSES)
def test_every_bonus_is_made_with_the_settings_of_its_section(name):
    config = replace(preset("cpu", task="FrankaReach"), bonus=name)
    bonus = make_bonus(config, 6, 3)
    assert type(bonus) is bonus_class(name)
    for setting, value in vars(getattr(config, name, object)).items():
        if not setting.startswith("_") and hasattr(bonus, setting):
            assert getattr(bonus, setting) == value
    if name == "mimex":
        assert bonus.action_dim is None
        assert make_bonus(merged(config, {"mimex": {"actions": True}}), 6, 3).action_dim == 3
        assert bonus.mask == TimeMask(0.7)
        features = make_bonus(merged(config, {"mimex": {"mask_type": "feature"}}), 6, 3)
        assert features.mask == FeatureMask(0.7, 6)
        tubes = make_bonus(merged(config, {"mimex": {"mask_type": "tube"}}), 6, 3)
        assert tubes.mask == FeatureMask(0.7, 6, tube=True)


def test_spaces_say_whether_observations_and_actions_are_discrete():
    """By --task and --bonus: observation space, action space, and the sums of strides."""
    for task, bonus, expected in [
        ("gym/mimex/DeepSea-v0", "mimex", True),
        ("gym/mimex/OrderedButtons-v0", "pseudocount", True),
        ("gym/mimex/FlagCar-v0", "mimex", False),
        ("gym/mimex/FlagCar-v0", "icm", True),
        ("gym/mimex/FlagCar-v0", "e3b", True),
        ("gym/Pendulum-v1", "icm", False),
    ]:
        config = replace(preset("cpu", task=task), bonus=bonus, envs=1)
        made = make_training(config).agent.bonus
        name = "discrete_obs" if bonus in ("mimex", "pseudocount") else "discrete"
        assert getattr(made, name) is expected, (task, bonus)
    strided = merged(config, {"loop": {"stride": 2}})
    strided = replace(strided, task="gym/mimex/FlagCar-v0")
    assert make_training(strided).agent.bonus.discrete is False


class Made:
    """Pays for a thing. It says more.

    Args:
        feature_dim: Found out.
        size: How big
            it is.
        kind: Of two.
        seed: Of all.
    """

    no_settings = ("seed",)

    def __init__(self, feature_dim=None, size: float = 0.5, kind: str = "a", seed: int = 0):
        pass


def test_settings_are_the_parameters_of_a_constructor_and_its_docstrings_words(capsys):
    settings = settings_of(Made)
    assert vars(settings()) == {"size": 0.5, "kind": "a"}
    with pytest.raises(SystemExit):
        tyro.cli(settings, args=["--help"])
    text = capsys.readouterr().out
    for words in ("Pays for a thing.", "--size FLOAT", "How big it is. (default: 0.5)", "Of two."):
        assert words in text
    assert "seed" not in text


def test_every_setting_of_every_bonus_has_words():
    for name in BONUSES:
        settings = settings_of(bonus_class(name))
        for line in settings.__doc__.partition("Args:")[2].strip().splitlines():
            assert len(line.partition(": ")[2]) > 8, (name, line)


def test_an_episodic_bonus_is_refused_where_steps_are_sampled():
    with pytest.raises(ValueError, match=r"--bonus is 'e3b'.*replay buffer"):
        parse(["dmc/cartpole_swingup", "--bonus", "e3b"]).checked()


def test_pixels_have_defaults_of_their_own():
    pixels, oracle = preset("cpu", "pixels"), preset("cpu", "oracle")
    assert pixels.ppo.lr < oracle.ppo.lr
    assert pixels.envs < oracle.envs
    assert replace(pixels.ppo, lr=oracle.ppo.lr, min_std=oracle.ppo.min_std) == oracle.ppo


def test_mimex_is_compact_and_learns_fast_in_the_cpu_preset_but_not_in_the_paper():
    for task in ("FrankaPick", "gym/CartPole-v1"):
        ours = preset("cpu", task=task).mimex
        assert (ours.lr, ours.size) == (3e-3, COMPACT)
        assert preset("cpu", task=task).rnd.lr == 3e-3
    theirs = preset("paper", task="FrankaPick").mimex
    assert (theirs.lr, theirs.size) == (1e-4, RELEASED)


def test_a_variant_has_its_settings_and_flags_override_them():
    variant = parse(["KukaReachLeft"])
    assert variant.world.goal_offset == (0.0, 0.4, 0.4)
    assert variant.world.episode_steps == 100
    assert variant.ppo == parse(["KukaReach"]).ppo
    moved = parse(["KukaReachLeft", "--world.goal-offset", "0", "0", "0"])
    assert moved.world.goal_offset == (0.0, 0.0, 0.0)
    assert moved.world.terms == ("goal_bonus=8",)
    assert parse(["FrankaReachUp", "--preset", "paper", "--observation", "pixels"]).ppo.lr == 1e-3
