"""A real Ray cluster of two nodes on this machine, of which one is lost in the middle."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.processes import lines, start, wait_for

from mimex.cli import main
from mimex.study.ray_backend import RayBackend

ROLLOUT = 32  # steps


def start_study(plan, out, address, *more):
    words = ["study", "run", str(plan), "--out", str(out), "--seeds", "1", "--no-report"]
    where = ("--backend", "ray", "--address", address)
    return start([*words, *where, *more], RAY_USAGE_STATS_ENABLED="0")


def below(pid):
    """All processes that a process has started, and those that they have, with their commands."""
    parents, commands = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has just ended
    found = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        children = [child for child, above in parents.items() if above == parent]
        found |= {child: commands[child] for child in children}
        todo += children
    return found


def run_on(raylet):
    """The folder of the run that a node makes at the moment, if there is one."""
    for words in below(raylet).values():
        if "mimex.cli" in words and "--out" in words:
            return Path(words[words.index("--out") + 1])
    return None


def steps(run):
    return lines(run) * ROLLOUT


@pytest.fixture(scope="module")
def cluster():
    """One node with one core, to which a test adds what it needs, and takes it away."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=node)
        yield cluster
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_runs_of_a_lost_node_continue_elsewhere_from_their_checkpoint(cluster, tiny_plan, tmp_path):
    out, budget = tmp_path / "study", 1920
    node = cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    raylet = node.all_processes["raylet"][0].process.pid
    study = start_study(tiny_plan, out, cluster.address, "--set", f"steps={budget}")
    lost = wait_for(study, lambda: run_on(raylet), every=0.1)
    wait_for(study, lambda: steps(lost) > 320)
    for pid in (raylet, *below(raylet)):  # all at once, as when a machine is switched off
        os.kill(pid, signal.SIGKILL)
    saved = int(max((lost / "checkpoints").glob("step_*")).stem.removeprefix("step_"))
    assert steps(lost) < budget
    said, _ = study.communicate(timeout=300)
    assert study.returncode == 0, said
    assert "2 runs done, 0 failed" in said
    log = (out / "logs" / f"{lost.name}.log").read_text()
    assert log.count("$ mimex train") == 2
    assert f"resuming from step {saved:,}" in log
    for run in (out / "runs").iterdir():
        assert steps(run) + ROLLOUT == budget  # each step once; the warm-up has no row


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_goes_to_a_node_with_a_gpu_if_it_needs_one(cluster, tiny_plan, tmp_path):
    head = cluster.head_node.all_processes["raylet"][0].process.pid
    node = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=80 * 2**20)
    raylet = node.all_processes["raylet"][0].process.pid
    more = ("--gpus", "1")
    study = start_study(tiny_plan, tmp_path / "study", cluster.address, *more)
    seen = set()
    while study.poll() is None:  # two runs, one after the other
        assert run_on(head) is None
        seen |= {run_on(raylet)} - {None}
        time.sleep(0.2)
    said, _ = study.communicate()
    cluster.remove_node(node)
    assert "2 runs done, 0 failed" in said
    assert len(seen) == 2


@pytest.mark.slow
def test_a_stopped_study_lets_the_clusters_runs_save(cluster, tiny_plan, tmp_path):
    out = tmp_path / "study"
    more = ("--jobs", "2", "--set", "steps=1000000")
    study = start_study(tiny_plan, out, cluster.address, *more)  # the cluster has one core
    wait_for(study, lambda: any(steps(run) > 96 for run in (out / "runs").glob("*")))
    study.send_signal(signal.SIGINT)
    said, _ = study.communicate(timeout=120)
    assert study.returncode == 130
    assert "the same command resumes" in said
    (log,) = (out / "logs").iterdir()  # the run that waited was not begun
    assert "stopped by SIGTERM" in log.read_text()


def test_without_a_cluster_the_remedy_is_named(tiny_plan, tmp_path, capsys, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    command = ["study", "run", str(tiny_plan), "--out", str(tmp_path / "s"), "--backend", "ray"]
    assert main([*command, "--address", "127.0.0.1:1"]) == 1
    assert "`ray start --head` starts one" in capsys.readouterr().err


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'mimex\[ray\]'"):
        RayBackend("auto", threads=1)
