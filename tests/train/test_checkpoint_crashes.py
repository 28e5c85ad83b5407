"""A full disk and kills at random moments cost nothing that was saved before."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.processes import FORKS

from mimex.train.checkpoint import Checkpoints, load, save


def assert_full_disk_is_survived(folder: Path) -> None:
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.save(1, {"step": 1}, score=1.0)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    big = {"weights": torch.zeros(500_000)}
    with pytest.raises(OSError, match=r"step_000000000002.*2\.0 MB.*Older checkpoints are intact"):
        checkpoints.save(2, big, score=2.0)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    checkpoints.save(3, {"step": 3}, score=3.0)
    assert checkpoints.best()[0] == 3


def test_a_full_disk_is_reported_and_harms_nothing(tmp_path):
    """A real file system of one megabyte, where we may mount one."""
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    try:
        assert_full_disk_is_survived(tmp_path)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            save(tmp_path / "x", {"weights": torch.zeros(500_000)})
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def run_alone(function: Callable[[Path], None], folder: Path) -> None:
    """Runs a function of this file in a process of its own."""
    with FORKS.Pool(1, torch.set_num_threads, (1,)) as pool:  # threads do not survive a fork
        pool.apply(function, (folder,))


def with_small_files(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    assert_full_disk_is_survived(folder)


def test_a_write_that_the_system_cuts_short_harms_nothing(tmp_path):
    """The same without root: the kernel refuses to let any file grow beyond a megabyte."""
    run_alone(with_small_files, tmp_path)


def weights_of(step: int) -> torch.Tensor:
    return torch.full((200_000,), float(step))


def save_forever(folder: Path, tell: int) -> None:
    checkpoints = Checkpoints(folder, keep=2)
    found = checkpoints.latest()
    step = 0 if found is None else found[0]
    while True:
        step += 1
        checkpoints.save(step, {"weights": weights_of(step)}, score=float(step % 7))
        os.write(tell, f"{step} ".encode())


def kill_fifty_times(folder: Path) -> None:
    moments = random.Random(0)
    last = 0
    for _ in range(50):
        listen, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                save_forever(folder, tell)
            finally:
                os._exit(1)
        heard = b""
        wait_for = moments.randrange(4)  # saves, however slow the machine is
        while heard.count(b" ") < wait_for:
            heard += os.read(listen, 100)
        time.sleep(moments.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the child ended by itself"
        os.close(tell)
        with os.fdopen(listen, "rb") as told:
            announced = max(map(int, (heard + told.read()).split()), default=last)
        whole = [load(path) for path in folder.glob("[!.]*")]  # any damaged one would raise
        assert all(torch.equal(x["state"]["weights"], weights_of(x["step"])) for x in whole)
        found = Checkpoints(folder).latest()
        last = 0 if found is None else found[0]
        assert announced <= last <= announced + 1  # it may die between the save and the word
    assert last > 50, f"only {last} saves in 50 lives: the kills came too early to mean much"


def test_a_kill_at_any_moment_loses_nothing_that_was_saved(tmp_path):
    run_alone(kill_fifty_times, tmp_path)
