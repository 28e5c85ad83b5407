from dataclasses import replace

import pytest

from mimex.study.plan_file import plan_text, read_plan, write_plan
from mimex.study.plans import PLANS


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_survives_being_written_and_read(name, tmp_path):
    path = tmp_path / "mine.toml"
    write_plan(PLANS[name], path)
    assert read_plan(path) == replace(PLANS[name], name="mine")


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
        ("about =", "abuot =", "a field is 'abuot'.*did you mean 'about'"),
        ("[scales.cpu]", "[scales.cpu]\nsteps = 3", "a field of scales.cpu is 'steps'"),
        ("seeds = 7", "seeds = true", "seeds is True, but must be a whole number"),
        ("[scales.cpu.tasks.KukaPick]", "[scales.cpu.tasks.Kuka]", "did you mean 'KukaPick'"),
        ('tasks = ["KukaReach", "KukaPick"]', 'tasks = "KukaPick"', "must be a list"),
        ('tasks = ["KukaReach", "KukaPick"]', "", "tasks is missing"),
        ('"20%" = {', '"20%" = 3 #', "axes.mask-ratio.20% is 3, but must be a table"),
        ("about =", "about", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place(before, after, words, tmp_path):
    path = tmp_path / "mine.toml"
    text = plan_text(PLANS["mask-ratio"])
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(ValueError, match=words) as error:
        read_plan(path)
    assert str(path) in str(error.value)


def test_a_file_is_not_overwritten(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="choose another name"):
        write_plan(PLANS["mask-ratio"], path)
    assert path.read_text() == "precious"
