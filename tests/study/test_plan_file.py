import os
from dataclasses import replace

import pytest

from mimex.bonus.size import LARGER
from mimex.config.families.base import OWN
from mimex.study.plan import PLANS, copy_plan, find_plan, read_plan

A_ROLLOUT = 512 * 32  # environment steps an update, as published


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_ours_is_read_as_anybodys_own(name, tmp_path):
    path = tmp_path / "mine.toml"
    copy_plan(name, path)
    assert find_plan(str(path)) == replace(find_plan(name), name="mine")


def test_settings_may_be_dotted_nested_or_spelt_as_flags(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(
        """
        tasks = ["FrankaReach"]
        [settings]
        mimex.mask-ratio = 0.5
        [settings.ppo]
        epochs = 3
        [axes.x]
        "a.b" = { mimex.size.decoder_width = 32 }
        [scales.any.settings]
        steps = 10
        """
    )
    (run,) = read_plan(path).runs("any", seeds=1)
    assert run.labels == {"x": "a.b"}
    assert run.settings == {
        "mimex.mask_ratio": 0.5,
        "ppo.epochs": 3,
        "steps": 10,
        "mimex.size.decoder_width": 32,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("about =", "abuot =", "a setting in the plan is 'abuot'.*did you mean 'about'"),
        (
            "[scales.cpu]",
            "[scales.cpu]\nsteps = 3",
            "a setting in the plan under scales.cpu is 'steps'",
        ),
        ("seeds = 7", "seeds = true", "the plan has True for seeds: expected int"),
        ("\nKukaPick = {", "\nKuka = {", "did you mean 'KukaPick'"),
        (
            'tasks = ["KukaReach", "KukaPick"]',
            'tasks = "KukaPick"',
            "the plan has 'KukaPick' for tasks: expected tuple",
        ),
        ('tasks = ["KukaReach", "KukaPick"]', "", "the plan lacks tasks"),
        (
            '"K = 5" = {',
            '"K = 5" = 3 #',
            "the plan has 3 for axes.ablation.K = 5: expected a mapping",
        ),
        ("about =", "about", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(before, after, words, tmp_path):
    path = tmp_path / "mine.toml"
    text = PLANS["ablations"].read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(ValueError, match=words) as error:
        read_plan(path)
    assert str(path) in str(error.value)


def test_a_plan_is_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a file; mimex study init"):
        find_plan(str(tmp_path / "missing.toml"))
    os.mkfifo(tmp_path / "pipe.toml")  # reading it would wait forever
    with pytest.raises(FileNotFoundError, match=r"pipe\.toml is not a file"):
        find_plan(str(tmp_path / "pipe.toml"))
    (tmp_path / "link.toml").symlink_to(PLANS["ablations"])
    assert find_plan(str(tmp_path / "link.toml")).tasks


@pytest.mark.parametrize("seeds", [10**6, 10**30, 10**400])
def test_more_runs_than_a_study_can_have_are_refused(tmp_path, seeds):
    path = tmp_path / "mine.toml"
    text = PLANS["ablations"].read_text()
    path.write_text(f"seeds = {seeds}\n{text.replace('seeds =', '# seeds =')}")
    with pytest.raises(ValueError, match=r"seeds is .* more than 100,000 runs"):
        read_plan(path).runs("cpu")


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"deep\.toml"):
        read_plan(path)


def test_a_file_is_not_overwritten(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="choose another name"):
        copy_plan("ablations", path)
    assert path.read_text() == "precious"


def labels(name):
    return {tuple(run.labels.values()) for run in find_plan(name).runs("cpu")}


def every_part(runs):
    """Runs in which every task and label occurs: few, since reading a command line is slow."""
    seen = set()
    for run in runs:
        parts = {run.task, *run.labels.values()}
        if parts - seen:
            seen |= parts
            yield run


def count(name):
    return len(find_plan(name).runs("paper"))


@pytest.mark.parametrize(
    ("name", "scale"), [(name, scale) for name in PLANS for scale in find_plan(name).scales]
)
def test_every_run_of_every_plan_is_one_that_can_be_made(name, scale):
    for run in every_part(find_plan(name).runs(scale, seeds=1)):
        config = run.config()
        assert (config.task, config.steps) == (run.task, run.steps)
        assert config.preset == scale
        of_family = {"dmc": "state", "gym": OWN}.get(run.task.partition("/")[0], "oracle")
        assert config.observation == (of_family if scale == "cpu" else "pixels")


def test_the_papers_figures_are_there_with_seven_seeds():
    assert count("baselines-pixmc") == 8 * 4 * 7
    assert count("baselines-dmc") == 6 * 4 * 7
    assert count("ablations") == 2 * 12 * 7
    assert count("reward-sparsity") == 4 * 7
    assert count("difficulty") == 8 * 3  # ours: one seed


def test_the_gate_differs_from_its_control_by_the_starts_alone():
    runs = {run.name: dict(run.settings) for run in find_plan("gate").runs("cpu")}
    oracle, constant = runs["FrankaPick-oracle-0"], runs["FrankaPick-constant-0"]
    assert oracle.pop("world.expert_starts") == 0.1
    assert oracle == constant


def test_ablations_are_made_with_mimex_on_two_kuka_tasks():
    for run in find_plan("ablations").runs("paper", seeds=1):
        assert run.task in ("KukaReach", "KukaPick")
        assert (run.settings["bonus"], run.settings["reward"]) == ("mimex", "sparse")


def test_the_larger_decoder_is_the_papers():
    runs = {run.name: run for run in find_plan("ablations").runs("paper")}
    assert runs["KukaPick-larger-decoder-0"].config().mimex.size == replace(
        LARGER, class_token=True
    )


def test_masks_are_those_of_the_paper():
    found = {
        (run.settings["mimex.mask_type"], run.settings["mimex.mask_ratio"])
        for run in find_plan("ablations").runs("cpu", seeds=1)
    }
    times = {("time", ratio) for ratio in (0.2, 0.5, 0.7)}
    assert found == times | {("feature", ratio) for ratio in (0.8, 0.9, 0.95)}


def test_reward_sparsity_has_the_papers_four_methods():
    assert labels("reward-sparsity") == {
        ("dense, none",),
        ("sparse, none",),
        ("sparse, mimex",),
        ("sparser, mimex",),
    }


def test_published_budgets_are_whole_updates_and_betas_are_as_said():
    for run in find_plan("baselines-pixmc").runs("paper", seeds=1):
        assert run.steps % A_ROLLOUT == 0
        assert run.settings["scale.beta"] == 0.05
    for run in find_plan("baselines-pixmc").runs("cpu", seeds=1):
        assert "scale.beta" not in run.settings  # the preset's, which is right for all methods


def test_a_misspelt_plan_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'ablations'"):
        find_plan("ablation")
