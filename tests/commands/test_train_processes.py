"""Whole runs over several processes: the same in all, stopped, killed, resumed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.drills import family
from tests.processes import assert_equal, rows, start, train_together, wait_for, wait_for_rows

from mimex.bonus import BONUSES
from mimex.cli import main
from mimex.commands.processes import LOST, SPAWNED_CODE, own_rank
from mimex.nn.processes import Rank
from mimex.train.checkpoint import Checkpoints
from mimex.train.ranks import RANKS

ENVS, STEPS = 4, 8
A_ROLLOUT = ENVS * STEPS

OWN = {  # what may differ between processes: environments, random numbers, windows
    *("environment", "observation", "agent.generator", "agent.algorithm.generator"),
    *("agent.bonus.generator", "agent.bonus.episodes", "agent.windows", "agent.history"),
    *("agent.probe", "restarts", "callbacks.episodes.returns", "callbacks.episodes.steps"),
    *("callbacks.episodes.met", "callbacks.novelty.positions", "callbacks.novelty.newest"),
}


def command(run, updates, *more, processes=2, bonus="mimex"):
    """A small run of so many updates after the warm-up, saved every third."""
    return [
        *("train", "FrankaReach", "--out", str(run), "--bonus", bonus),
        *("--steps", str((updates + 1) * A_ROLLOUT), "--envs", str(ENVS)),
        *("--processes", str(processes), "--horizon", "1000"),
        *("--loop.rollout-steps", str(STEPS), "--ppo.epochs", "2", "--ppo.minibatches", "2"),
        *("--loop.bonus-minibatch", "16", "--world.episode-steps", "13", "--threads", "1"),
        *("--track.checkpoint-every", str(3 * A_ROLLOUT)),
        *("--eval.every", str(10 * A_ROLLOUT), "--eval.episodes", "2"),
        *more,
    ]


def saved(run):
    return Checkpoints(run / "checkpoints").latest()


def differing(state):
    """Dotted names of what the second process has another value of."""
    return {".".join(path) for path, _ in state[RANKS][0]}


def of(names, name):
    return any(name == own or name.startswith(f"{own}.") for own in names)


def others(pid):
    """The processes that one has started."""
    return family(pid)[1:]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of two processes that nobody disturbs."""
    run = tmp_path_factory.mktemp("processes") / "straight"
    assert main(command(run, 12)) == 0
    return run


def test_what_is_learned_and_measured_is_the_same_in_all_processes(straight):
    step, state = saved(straight)
    assert step == 13 * A_ROLLOUT
    found = differing(state)
    assert [name for name in found if not of(OWN, name)] == []
    assert {"agent.generator", "agent.algorithm.generator", "agent.bonus.generator"} <= found
    assert any(of({"environment"}, name) for name in found)
    told = rows(straight)
    assert [row["step"] for row in told] == [A_ROLLOUT * n for n in range(2, 14)]
    ended = told[-1]["train/episodes"]
    assert ended >= 12 * STEPS // 13 * ENVS - ENVS  # of all environments
    assert json.loads((straight / "config.json").read_text())["processes"] == 2


def continued_after(end, run, updates, count):
    """Ends a run of two processes once it has some rows, then lets it come to its end."""
    process = start(command(run, updates))
    wait_for_rows(process, run, count)
    children = others(process.pid)
    assert len(children) == 1
    code = end(process, children[0])
    try:
        words = process.communicate(timeout=120)[0]
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == code, words
    wait_for_end(children[0])
    train_together(command(run, updates), 2)
    return words


def wait_for_end(pid):
    sleeper = subprocess.Popen(["sleep", "600"])
    wait_for(sleeper, lambda: not Path(f"/proc/{pid}").exists())
    sleeper.kill()
    sleeper.wait()


def assert_same_run(run, other):
    assert rows(run) == rows(other)
    (step, state), (same_step, expected) = saved(run), saved(other)
    assert step == same_step
    assert_equal(state, expected)


def test_a_run_that_is_stopped_and_resumed_equals_one_that_is_not(straight, tmp_path):
    def stop(process, child):
        process.terminate()
        return 128 + signal.SIGTERM

    words = continued_after(stop, tmp_path / "run", 12, 4)
    assert "stopped by SIGTERM" in words
    assert_same_run(tmp_path / "run", straight)


def test_a_process_that_is_suspended_does_not_keep_a_run_from_ending(straight, tmp_path):
    def suspend_and_stop(process, child):
        os.kill(child, signal.SIGSTOP)
        process.terminate()
        return 128 + signal.SIGTERM

    words = continued_after(suspend_and_stop, tmp_path / "run", 12, 4)
    assert "stopped by SIGTERM" in words
    assert_same_run(tmp_path / "run", straight)


def test_a_process_that_is_killed_ends_the_run_and_nothing_is_lost(straight, tmp_path):
    def kill(process, child):
        os.kill(child, signal.SIGKILL)
        return 1

    words = continued_after(kill, tmp_path / "run", 12, 5).splitlines()
    assert words[-1].startswith("mimex: process 1 of 2 (from 0) was killed by SIGKILL")
    assert "Traceback" not in "\n".join(words)
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.slow
def test_when_the_first_process_is_killed_the_others_end(straight, tmp_path):
    def kill(process, child):
        process.kill()
        return -signal.SIGKILL

    continued_after(kill, tmp_path / "run", 12, 7)
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.slow
def test_ctrl_c_may_reach_any_process(straight, tmp_path):
    def interrupt(process, child):
        os.kill(child, signal.SIGINT)
        return 128 + signal.SIGINT

    assert "stopped by SIGINT" in continued_after(interrupt, tmp_path / "run", 12, 4)
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.slow
def test_an_evaluation_that_is_given_up_is_made_again(straight, tmp_path, stops_in_evaluation):
    stops_in_evaluation(1)
    assert main(command(tmp_path / "run", 12)) == 128 + signal.SIGTERM
    train_together(command(tmp_path / "run", 12), 2)
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4)])
def test_a_run_resumes_with_another_number_of_processes(tmp_path, before, after):
    run = tmp_path / "run"
    train_together(command(run, 4, processes=before), before)
    step, state = saved(run)
    words = train_together(command(run, 8, processes=after), after)
    assert f"resuming from step {step:,}" in words
    assert f"with {after} processes instead of {before}: new episodes and random" in words
    told = rows(run)
    assert [row["step"] for row in told] == [A_ROLLOUT * n for n in range(2, 10)]
    episodes = [row["train/episodes"] for row in told if "train/episodes" in row]
    assert episodes == sorted(episodes)
    later = saved(run)[1]
    assert later["agent"]["bonus"]["steps"] == 2 * state["agent"]["bonus"]["steps"]
    assert len(later.get(RANKS, [])) == after - 1
    generators = {
        tuple(value.tolist())
        for path, value in [path for own in later.get(RANKS, []) for path in own]
        if path == ["agent", "generator"]
    }
    assert len(generators) == after - 1  # each has its own


@pytest.mark.slow
@pytest.mark.parametrize("bonus", BONUSES)
def test_every_bonus_is_the_same_in_all_processes(tmp_path, bonus):
    more = ("--loop.ends-at", "next") if bonus in ("icm", "e3b", "disagreement") else ()
    train_together(command(tmp_path / "run", 3, *more, bonus=bonus), 2)
    found = differing(saved(tmp_path / "run")[1])
    assert [name for name in found if not of(OWN, name)] == []


@pytest.mark.slow
def test_a_curriculum_moves_on_in_all_processes(tmp_path):
    stages = ("--curriculum", "dense", "sparse", "--curriculum-success", "0.000001")
    run = tmp_path / "run"
    train_together(command(run, 3, *stages), 2)
    found = differing(saved(run)[1])
    assert [name for name in found if not of(OWN, name)] == []


@pytest.mark.slow
def test_torchrun_makes_the_same_run(straight, tmp_path):
    run = tmp_path / "run"
    words = command(run, 12, processes=1)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "mimex", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_same_run(run, straight)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--processes", "0"), "--processes is 0, but must be at least 1"),
        (("--processes", "3"), "--envs is 4, which 3 processes cannot share equally: use --envs 3"),
        (
            ("--agent", "drqv2", "--processes", "2"),
            "--processes is 2, but --agent drqv2 has one replay buffer",
        ),
    ],
)
def test_settings_that_processes_cannot_have_are_refused(tmp_path, capsys, more, words):
    run = tmp_path / "run"
    assert main(["train", "FrankaReach", "--out", str(run), "--envs", "4", *more]) == 1
    assert words in capsys.readouterr().err
    assert not run.exists()


def test_torchrun_and_another_number_of_processes_are_refused(tmp_path, capsys, monkeypatch):
    told = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}
    for name, value in {**told, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert main(command(tmp_path / "run", 1, processes=4)) == 1
    assert "torchrun has 2: leave it out" in capsys.readouterr().err


def test_a_started_process_knows_its_place_and_ends_without_the_first(monkeypatch):
    place = Rank(1, 2, 1, 2)
    told = json.dumps(vars(place) | {"port": 1})
    monkeypatch.setenv("MIMEX_PROCESS", told)
    assert own_rank() == place
    done = subprocess.run(
        [sys.executable, "-c", SPAWNED_CODE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == LOST
    assert "Traceback" not in done.stderr


def test_the_package_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "mimex", "envs"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "FrankaReach" in done.stdout
