"""``mimex`` in processes of its own, and what their run folders hold.

To import PyTorch and MuJoCo takes seconds. So processes are forked from one that has imported
everything and done nothing, unless being new is the point (``start_new``).
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from benchmarks.drills import WARM
from torch.distributed import TCPStore

from mimex.nn import processes
from mimex.nn.processes import Rank

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([*WARM, "pytest", __name__])
PATIENCE = 600  # seconds, for a machine that has more to do


class Forked:
    """A ``mimex`` command in a forked process, with the face of ``subprocess.Popen``."""

    def __init__(self, arguments, environment):
        self.stdout = tempfile.NamedTemporaryFile("r")  # noqa: SIM115 (as long as the process)
        work = (arguments, environment, self.stdout.name)
        self._process = FORKS.Process(target=_mimex, args=work, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=None):
        self._process.join(timeout)
        assert self.returncode is not None, f"still at work after {timeout} s"
        with self.stdout as printed:
            return printed.read(), None


def _mimex(arguments, environment, log):
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environment)
    sys.argv = ["mimex", *arguments]
    torch.set_num_threads(1)
    from mimex.cli import main

    sys.exit(main(arguments))


def start(arguments, **environment):
    """A ``mimex`` command, with all it prints in ``stdout``."""
    return Forked(arguments, environment)


def train_together(arguments, size):
    """Trains in so many processes that are told their places as by torchrun; all that was said."""
    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    meeting |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    meeting |= {"WORLD_SIZE": str(size), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [start(arguments, **meeting, RANK=str(rank)) for rank in range(size)]
    words = [rank.communicate(PATIENCE)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, words
    return words[0]


def start_new(arguments):
    """The same from the first instruction of Python on."""
    return subprocess.Popen(
        [sys.executable, "-m", "mimex.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def together(function, size, *arguments):
    """What a function returns in each of the processes of a run, in their order."""
    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    work = [(function, Rank(rank, size, rank, size), store.port, arguments) for rank in range(size)]
    with FORKS.Pool(size) as pool:
        return pool.starmap(_in_place, work, chunksize=1)


def _in_place(function, place, port, arguments):
    torch.set_num_threads(1)
    with processes.at(place):
        processes.init(TCPStore("127.0.0.1", port, place.size, is_master=False))
        return function(*arguments)


def rows(run):
    """The metrics without times."""
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    parsed = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in parsed]


def wait_for(process, condition, every=0.005):
    """What is asked for ``every`` so many seconds, once it holds; fails if the process ends."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(every)
    return answer


def lines(run):
    """How many rows of metrics there are."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_rows(process, run, count):
    """Until a run folder has so many rows of metrics."""
    wait_for(process, lambda: lines(run) >= count)


def assert_equal(one, other, place="state"):
    """Of states of any depth, bit for bit."""
    assert type(one) is type(other), place
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key, value in one.items():
            assert_equal(value, other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{place}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), place
    else:
        assert np.array_equal(one, other), place
