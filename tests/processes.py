"""``mimex`` in processes of its own, and what their run folders hold."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import numpy as np
import torch
from torch.distributed import TCPStore

from mimex.nn import processes
from mimex.nn.processes import Place

_WARM = ("torch._dynamo", "mimex.agents.ppo", "mimex.bonus.mimex", "mimex.train.episodes")
PATIENCE = 600  # seconds, for a machine that has more to do


def start(arguments):
    """A ``mimex`` command, with all it prints in ``stdout``."""
    return subprocess.Popen(
        [sys.executable, "-m", "mimex.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def together(function, size, *arguments):
    """What a function returns in each of the processes of a run, in their order."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_WARM))
    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    work = [
        (function, Place(rank, size, rank, size), store.port, arguments) for rank in range(size)
    ]
    with context.Pool(size) as pool:
        return pool.starmap(_in_place, work, chunksize=1)


def _in_place(function, place, port, arguments):
    torch.set_num_threads(1)
    with processes.at(place):
        processes.meet(TCPStore("127.0.0.1", port, place.size, is_master=False))
        return function(*arguments)


def rows(run):
    """The metrics without times."""
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    parsed = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in parsed]


def wait_for(process, condition):
    """Until it holds; an error if the process ends before."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_for_rows(process, run, count):
    """Until a run folder has so many rows of metrics."""
    wait_for(process, lambda: len(rows(run)) >= count)


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
