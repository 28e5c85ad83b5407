from mimex.cli import main

SETUPS = """
import gymnasium
import mimex


def good(make_env, bonus):
    return mimex.wrap(make_env(), bonus)


def unpaid(make_env, bonus):
    env = mimex.wrap(make_env(), bonus, ends_at="observation")
    env.step = lambda action, step=env.step: (*(out := step(action))[:1], 0.0, *out[2:])
    return env
"""


def test_the_exit_code_says_whether_a_set_up_is_well(tmp_path, monkeypatch, capsys):
    (tmp_path / "two_setups.py").write_text(SETUPS)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "two_setups.py:good"]) == 0
    assert "nothing wrong was found" in capsys.readouterr().out
    assert main(["doctor", "two_setups.py:unpaid"]) == 1  # the bonus is dropped from the reward
    printed = capsys.readouterr().out
    assert "fail" in printed
    assert "all well" not in printed


def test_a_malformed_target_is_refused(capsys):
    assert main(["doctor", "nowhere"]) == 1
    assert "module:function" in capsys.readouterr().err
