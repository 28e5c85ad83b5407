"""Every agent on every family of tasks, with two bonuses: trained, killed, continued, measured."""

import signal

import pytest
from benchmarks.drills import SMALL
from tests.processes import rows, start, wait_for_rows

from mimex.cli import main

REPEAT = 20  # of an action on dmc/: episodes of 50 steps
TASKS = {
    "FrankaReach": ("--world.episode-steps", "13"),
    "dmc/cartpole_swingup": ("--suite.action-repeat", str(REPEAT)),
    "gym/Pendulum-v1": ("--gym.episode-steps", "13"),
}
AGENTS = {
    "ppo": ("--envs", "4", "--loop.rollout-steps", "8", "--loop.bonus-minibatch", "16",
            "--ppo.epochs", "2", "--ppo.minibatches", "2"),
    "drqv2": ("--envs", "2", "--drqv2.seed-steps", "16", "--drqv2.random-steps", "8",
              "--drqv2.batch", "8", "--drqv2.hidden", "16", "--replay.capacity", "200"),
}  # fmt: skip
ROUND = 32  # steps from one row of metrics to the next


def command(agent, task, bonus, run):
    frames = ROUND * (REPEAT if task.startswith("dmc/") else 1)
    return [
        *("train", task, "--agent", agent, "--bonus", bonus, "--out", str(run), "--threads", "1"),
        *("--steps", str(6 * frames), "--eval.every", str(3 * frames), "--eval.episodes", "2"),
        *("--track.checkpoint-every", str(2 * frames), "--off-policy.report-every", str(frames)),
        *TASKS[task],
        *AGENTS[agent],
        *SMALL,
    ]


def kill_after(count, arguments, run):
    """Kills a run with SIGKILL once it has so many rows."""
    process = start(arguments)
    wait_for_rows(process, run, count)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_pair_trains_resumes_is_evaluated_and_is_in_a_report(agent, task, tmp_path, capsys):
    runs = {bonus: tmp_path / bonus for bonus in ("mimex", "rnd")}
    for bonus, run in runs.items():
        arguments = command(agent, task, bonus, run)
        kill_after(3, arguments, run)
        capsys.readouterr()
        assert main(arguments) == 0
        assert "resuming from step" in capsys.readouterr().out
        last = rows(run)[-1]
        assert last["step"] == int(arguments[arguments.index("--steps") + 1])
        assert last["bonus/mean"] > 0
        assert main(["eval", str(run), "--episodes", "3"]) == 0
        assert "over 3 episodes" in capsys.readouterr().out
    if not task.startswith("gym/"):  # whose environments cannot save their state
        straight = tmp_path / "straight"
        assert main(command(agent, task, "mimex", straight)) == 0
        assert rows(runs["mimex"]) == rows(straight)
    page = tmp_path / "report.html"
    assert main(["report", *map(str, runs.values()), "-o", str(page)]) == 0
    text = page.read_text()
    assert all(words in text for words in (task, "mimex", "rnd", agent))
