import os
import signal
import subprocess
import sys
import time

import pytest

from mimex.study.backends import Job, Process
from mimex.train.folder import RunFolder

STARTER = """
import sys, time
from pathlib import Path
from mimex.study.backends import Job, Process

folder = Path(sys.argv[1])
arguments = ("FrankaReach", "--envs", "4", "--loop.rollout-steps", "8", "--ppo.minibatches", "2")
process = Process(Job("run", arguments, folder / "run", folder / "log", 1))
while process.poll() is None:
    time.sleep(0.1)
"""


def a_job(folder, *arguments):
    return Job("run", arguments, folder / "run", folder / "log", 3)


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer


def ended(process):
    return wait_until(lambda: (code := process.poll()) is not None and (code + 1))


def test_the_log_has_the_command_and_its_output(tmp_path):
    process = Process(a_job(tmp_path, "FrankaRech"))
    assert ended(process) - 1 == 1
    first, last = (tmp_path / "log").read_text().splitlines()
    assert first == f"$ mimex train FrankaRech --out {tmp_path / 'run'} --threads 3"
    assert "did you mean 'FrankaReach'" in last


def test_a_folder_in_use_is_waited_for(tmp_path):
    process = Process(a_job(tmp_path, "FrankaRech"))
    with RunFolder(tmp_path / "run"):
        assert process.poll() is None
        assert process.poll() is None
        assert not (tmp_path / "log").exists()
    ended(process)
    assert (tmp_path / "log").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such signal")
def test_a_run_whose_starter_is_killed_saves_and_ends(tmp_path):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(metrics.exists)
    run = int((tmp_path / "run" / ".lock").read_text())
    starter.kill()
    assert starter.wait() == -signal.SIGKILL
    wait_until(lambda: not os.path.exists(f"/proc/{run}"))
    assert "stopped by SIGTERM" in (tmp_path / "log").read_text()
    assert list((tmp_path / "run" / "checkpoints").glob("step_*"))


def test_a_log_that_leads_elsewhere_is_not_written_through(tmp_path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="log is a symbolic link"):
        Process(a_job(tmp_path, "NoTask")).poll()
    assert (tmp_path / "secret").read_text() == "mine"
