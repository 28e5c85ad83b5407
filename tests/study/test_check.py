import pytest

from mimex.study.check import config_of, require_files
from mimex.study.plan import PlannedRun


def a_run(task="FrankaReach", **settings):
    return PlannedRun("name", task, 0, {}, settings)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (a_run(**{"mimex.lenght": 3}), "name cannot be made: .*mimex.lenght.*mimex.length"),
        (a_run(**{"mimex.length": "long"}), "mimex.length.*'long'"),
        (a_run(bonus="ring"), "--bonus is 'ring'"),
        (a_run("FrankaRech"), "did you mean 'FrankaReach'"),
    ],
)
def test_a_run_that_would_end_at_once_is_refused_before(run, words, capsys):
    with pytest.raises(ValueError, match=words):
        config_of(run)
    assert capsys.readouterr() == ("", "")  # all is in the error


def test_settings_that_are_not_given_are_those_of_the_preset():
    assert config_of(a_run()).ppo.epochs == 5
    assert config_of(a_run(preset="paper")).ppo.epochs == 10


def test_a_vit_needs_its_weights(tmp_path):
    weights = tmp_path / "vit.safetensors"
    settings = {"preset": "paper", "observation": "pixels"}
    with pytest.raises(ValueError, match="add --set vision"):
        require_files(config_of(a_run(**settings)))
    with pytest.raises(ValueError, match="safetensors, but must be a file"):
        require_files(config_of(a_run(**settings, **{"vision.checkpoint": str(weights)})))
    weights.write_bytes(b"")
    require_files(config_of(a_run(**settings, **{"vision.checkpoint": str(weights)})))
    require_files(config_of(a_run(observation="pixels")))  # the small network has none
