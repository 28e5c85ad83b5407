from dataclasses import replace

import pytest

from mimex.bonus.autoencoder import LARGER
from mimex.study.check import config_of
from mimex.study.plans import A_ROLLOUT, PLANS, named


def labels(name):
    return {tuple(run.labels.values()) for run in PLANS[name].runs("cpu")}


def every_part(runs):
    """Runs in which every task and label occurs: few, since reading a command line is slow."""
    seen = set()
    for run in runs:
        parts = {run.task, *run.labels.values()}
        if parts - seen:
            seen |= parts
            yield run


def count(name):
    return len(PLANS[name].runs("paper"))


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", PLANS)
def test_every_run_of_every_plan_is_one_that_can_be_made(name, scale):
    for run in every_part(PLANS[name].runs(scale, seeds=1)):
        config = config_of(run)
        assert (config.task, config.steps) == (run.task, run.steps)
        assert config.preset == scale
        assert config.observation == {"paper": "pixels"}.get(
            scale, "state" if run.task.startswith("dmc/") else "oracle"
        )


def test_the_papers_figures_are_there_with_seven_seeds():
    assert count("baselines-pixmc") == 8 * 4 * 7
    assert count("baselines-dmc") == 6 * 4 * 7
    assert count("sequence-length") == 2 * 5 * 7
    assert count("masks-per-window") == 2 * 2 * 7
    assert count("decoder-size") == 2 * 2 * 7
    assert count("mask-ratio") == 2 * 3 * 7
    assert count("mask-type") == 2 * 4 * 7
    assert count("reward-sparsity") == 4 * 7
    assert count("difficulty") == 8 * 3  # ours: one seed


def test_ablations_are_made_with_mimex_on_two_kuka_tasks():
    for name in ("sequence-length", "masks-per-window", "decoder-size", "mask-ratio", "mask-type"):
        for run in PLANS[name].runs("paper", seeds=1):
            assert run.task in ("KukaReach", "KukaPick")
            assert (run.settings["bonus"], run.settings["reward"]) == ("mimex", "sparse")


def test_the_larger_decoder_is_the_papers():
    runs = {run.name: run for run in PLANS["decoder-size"].runs("paper")}
    assert config_of(runs["KukaPick-larger-0"]).mimex.size == replace(LARGER, class_token=True)


def test_feature_masks_hide_what_the_paper_studied():
    found = {
        (config.mimex.mask_type, config.mimex.mask_ratio)
        for config in map(config_of, PLANS["mask-type"].runs("cpu", seeds=1))
    }
    assert found == {("time", 0.7), ("feature", 0.8), ("feature", 0.9), ("feature", 0.95)}


def test_reward_sparsity_asks_the_papers_four_questions():
    assert labels("reward-sparsity") == {
        ("dense, none",),
        ("sparse, none",),
        ("sparse, mimex",),
        ("sparser, mimex",),
    }


def test_published_budgets_are_whole_updates_and_betas_are_as_said():
    for run in PLANS["baselines-pixmc"].runs("paper", seeds=1):
        assert run.steps % A_ROLLOUT == 0
        assert run.settings["scale.beta"] == 0.05
    for run in PLANS["baselines-pixmc"].runs("cpu", seeds=1):
        assert "scale.beta" not in run.settings  # the preset's, which is right for all methods


def test_a_misspelt_plan_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'mask-ratio'"):
        named("mask-rate")
