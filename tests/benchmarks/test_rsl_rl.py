"""rsl_rl's PPO trains without a bonus, with its own RND and with MIMEx, on the same task."""

import pytest

from benchmarks import curves, rsl_rl


def test_every_method_trains_and_leaves_a_run_folder(monkeypatch, tmp_path):
    small = ["--seeds", "3", "--steps", "512", "--envs", "16", "--out", str(tmp_path / "runs")]
    monkeypatch.setattr("sys.argv", ["rsl_rl", *small])
    rsl_rl.main()
    monkeypatch.setattr(curves, "FOLDER", tmp_path)
    curves.collect("rsl_rl", [tmp_path / "runs"])
    found = curves.read(curves.path_of("rsl_rl"))
    assert set(found) == {
        ("rsl_rl", "FrankaReachUp", method, 3) for method in ("mimex", "rsl_rl-rnd", "none")
    }
    for run in found.values():
        assert run.columns["step"].tolist() == [512]
        assert run.columns["eval/success"].tolist() == [0]


@pytest.mark.parametrize(("method", "added"), [("mimex", True), ("none", False)])
def test_the_bonus_is_in_the_rewards_of_rsl_rl(method, added):
    from mimex.config import parse

    arguments = ["FrankaReachUp", "--reward", "sparse", "--envs", "16", "--threads", "1"]
    advance, _ = rsl_rl.make(parse(arguments), method)
    runner = advance.__closure__[[*advance.__code__.co_freevars].index("runner")].cell_contents
    seen = []
    compute = runner.alg.compute_returns

    def recorded(obs):
        before = runner.alg.storage.rewards.clone()
        compute(obs)
        seen.append((runner.alg.storage.rewards - before).abs().sum().item())

    runner.alg.compute_returns = recorded
    for _ in range(4):  # 128 steps of each environment; the first 64 have no bonus
        advance()
    assert (seen[-1] > 0) == added
