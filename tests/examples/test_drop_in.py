"""The examples of how to put a bonus into an agent: short, run, and the bonus is in the update."""

import importlib.util
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("sb3_ppo", "sb3_sac", "cleanrl_ppo", "plain_loop")


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_of_at_most_sixty_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 60


def test_the_cleanrl_loop_needs_ten_lines_and_they_change_its_advantages():
    text = (EXAMPLES / "cleanrl_ppo.py").read_text()
    assert sum("  # +" in line for line in text.splitlines()[2:]) <= 10
    loop = example("cleanrl_ppo")
    plain, paid = (loop.main(updates=1, beta=beta)["advantages"] for beta in (0.0, 0.1))
    # The same first rollout; a bonus is never negative, so every advantage rises or stays.
    assert (paid - plain).min() >= -1e-5
    assert (paid - plain).mean() > 0.01


def test_the_cleanrl_loop_goes_over_ends_of_episodes(capsys):
    example("cleanrl_ppo").main(updates=6)  # 768 steps, and episodes end after 500
    assert "update 5" in capsys.readouterr().out


def test_a_plain_loop_is_rewarded_after_the_warm_up():
    report = example("plain_loop").main(steps=300)
    assert report["extrinsic"] == pytest.approx(-1.0, abs=0.05)
    assert report["intrinsic, first tenth"] == 0 < report["intrinsic, last tenth"]


def test_stable_baselines_sac_comes_back_and_goes_on(tmp_path):
    again = example("sb3_sac").main(steps=260, folder=str(tmp_path))
    assert again.bonus.steps >= 25  # a quarter of the sampled batches before and after loading
    assert again.reward_sums["intrinsic"] > 0


def test_stable_baselines_ppo_runs_saves_and_loads(tmp_path):
    torch.set_num_threads(1)
    assert 0 <= example("sb3_ppo").main(steps=2_048, folder=str(tmp_path)) <= 1
    assert (tmp_path / "bonus.safetensors").exists()


@pytest.mark.slow
def test_stable_baselines_ppo_learns_the_sparse_task_with_the_bonus(tmp_path):
    assert example("sb3_ppo").main(steps=30_000, folder=str(tmp_path)) > 0.2
