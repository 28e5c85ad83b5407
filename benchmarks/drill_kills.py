"""Runs that are killed at random moments, for ``benchmarks.drills``.

A run is started again and again by the same command and ended by SIGKILL, until it has come to
its end. What it leaves must equal what a run leaves that nobody disturbed: every file of it, byte
for byte, but for those that tell times.

To import PyTorch and MuJoCo takes seconds. So most attempts are forked from a process that has
imported everything and done nothing; the others (``FRESH``), and all trainings that a study
starts, are new processes from the first instruction on.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

FRESH = 0.06
"""The share of attempts that are new processes; the first, undisturbed run always is one."""

KILLS_A_RUN = 20
"""After so many a run is left alone, so that what comes out is looked at often."""

SLOWEST = 1800.0
"""Seconds after which a run that is left alone counts as hanging, on a machine with much to do."""

POLL = 0.005  # seconds between two looks at what an attempt has used
IMPORTS = 2.0  # seconds of a processor that a new process needs more than a forked one

SMALL = (
    *("--mimex.size.width", "16", "--mimex.size.depth", "1", "--mimex.size.heads", "2"),
    *("--mimex.size.decoder-width", "16", "--mimex.size.decoder-heads", "2"),
)
PPO = (
    *("FrankaReach", "--bonus", "mimex", "--envs", "4", "--loop.rollout-steps", "8"),
    *("--ppo.epochs", "2", "--ppo.minibatches", "2", "--loop.bonus-minibatch", "16"),
    *("--world.episode-steps", "13", "--threads", "1", "--track.checkpoint-every", "96"),
    *("--eval.every", "320", "--eval.episodes", "2", "--ppo.hidden", "16", *SMALL),
)
DRQV2 = (
    *("dmc/cartpole_swingup", "--observation", "state", "--bonus", "mimex", "--threads", "1"),
    *("--off-policy.report-every", "250", "--suite.action-repeat", "50", "--drqv2.batch", "8"),
    *("--drqv2.seed-steps", "12", "--drqv2.random-steps", "8", "--drqv2.hidden", "16"),
    *("--track.checkpoint-every", "750", "--eval.every", "1750", "--eval.episodes", "1"),
    *("--drqv2.trunk", "8", *SMALL),
)
STUDY = """
tasks = ["FrankaReach"]
seeds = 1
[settings]
envs = 4
loop = { rollout_steps = 8, bonus_minibatch = 16 }
ppo = { minibatches = 2, epochs = 2, hidden = [16] }
rnd = { hidden = [16], output_dim = 8 }
world.episode_steps = 13
eval = { episodes = 2, every = 320 }
track.checkpoint_every = 96
[axes.method]
none = { bonus = "none" }
rnd = { bonus = "rnd" }
[scales.cpu.settings]
steps = 960
"""

KILLS = {"on-policy training": 0.475, "off-policy training": 0.475, "study": 0.05}
"""What is killed, and its share of all kills: few of a study, whose trainings are new processes."""

WARM = (
    *("torch._dynamo", "mujoco.batch", "dm_control.suite", "tyro", "rich.live"),
    *("mimex.commands.train", "mimex.commands.study", "mimex.commands.build"),
    *("mimex.envs.manipulation", "mimex.envs.dmc_vector", __name__),
)
"""What the process has imported that attempts are forked from."""

_TELL_TIMES = ("about.json", ".lock", "metrics.before.jsonl", "logs")


@dataclass
class Tally:
    """What a drill has done so far."""

    done: int = 0  # kills or inputs
    runs: int = 0
    fresh: int = 0  # kills of new processes
    failures: list[str] = field(default_factory=list)


def rows(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run without times."""
    path = run / "metrics.jsonl"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                found.append({k: v for k, v in row.items() if not k.startswith("time/")})
    return found


def runs_in(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("metrics.jsonl"))


def outcome(folder: Path) -> dict[str, Any]:
    """What must not depend on kills: of all runs at or below a folder."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or any(part in _TELL_TIMES for part in name.parts):
            continue
        found[str(name)] = rows(path.parent) if path.name == "metrics.jsonl" else path.read_bytes()
        if path.name == "config.json":  # names its folder
            found[str(name)] = found[str(name)].replace(bytes(folder.resolve()), b".")
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]


def _main(arguments: list[str], log: Path) -> None:
    """In the forked process: ``mimex`` with these arguments."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = ["mimex", *arguments]
    from mimex.cli import main

    sys.exit(main(arguments))


class Attempt:
    """A process that runs ``mimex``, forked from a warm one or new."""

    def __init__(self, arguments: list[str], log: Path, *, fresh: bool) -> None:
        self._log = log
        self._forked: ForkServerProcess | None = None
        if fresh:
            with log.open("wb") as file:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "mimex.cli", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
        else:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(WARM))
            self._forked = context.Process(target=_main, args=(arguments, log))
            self._forked.start()

    def wait(self, seconds: float | None) -> int | None:
        """The exit code; None if it still runs after so long."""
        if self._forked is not None:
            self._forked.join(seconds)
            return self._forked.exitcode
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """SIGKILL, and waits for its end."""
        if self._forked is not None:
            self._forked.kill()
        else:
            self._process.kill()
        self.wait(None)

    def wait_for_work(self, seconds: float) -> int | None:
        """The exit code; None if it still runs after so many seconds of a processor's time.

        Other than by the clock, attempts come equally far on a machine that has more to do.
        """
        while (code := self.wait(POLL)) is None:
            try:
                fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:  # it has just ended
                continue
            if sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") >= seconds:  # user, system
                return None
        return code

    @property
    def pid(self) -> int:
        pid = self._process.pid if self._forked is None else self._forked.pid
        assert pid is not None
        return pid

    @property
    def words(self) -> str:
        return self._log.read_text(errors="replace")[-500:] if self._log.exists() else ""


def _progress(folder: Path) -> int:
    """Rows of all runs at or below a folder."""
    return sum(len(rows(run)) for run in runs_in(folder))


def _work_to_first_row(arguments: list[str], place: Path) -> float:
    """Seconds of a processor from the start of a forked attempt to its first row."""
    out = place / "timed"
    shutil.rmtree(out, ignore_errors=True)
    # The first starts the warm process, and takes its time.
    Attempt(["envs"], place / "log", fresh=False).wait(None)
    attempt = Attempt([*arguments, "--out", str(out)], place / "log", fresh=False)
    seconds = 0.0
    while not _progress(out):
        seconds += 0.05
        ended = attempt.wait_for_work(seconds)
        assert ended is None or _progress(out), attempt.words  # it may have ended meanwhile
    attempt.kill()
    return seconds


def kill_drill(
    name: str,
    kills: int,
    seed: int,
    place: Path,
    tally: Tally,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Kills runs of one kind until there were so many; compares each that ends with a peaceful one.

    Args:
        name: One of ``KILLS``.
        kills: In all, with those that the tally already has.
        seed: Of the moments, together with the number of the run.
        place: A folder to work in. Runs that failed stay there.
        tally: Goes on from its numbers.
        after: Called after every run that came to its end.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    place.mkdir(parents=True, exist_ok=True)
    (place / "study.toml").write_text(STUDY)
    arguments = {
        "on-policy training": ["train", *PPO, "--steps", "1600"],
        "off-policy training": ["train", *DRQV2, "--steps", "6000"],
        "study": ["study", "run", str(place / "study.toml"), "--jobs", "2", "--no-report"],
    }[name]
    peace, log = place / "peace", place / "log"
    shutil.rmtree(peace, ignore_errors=True)
    attempt = Attempt([*arguments, "--out", str(peace)], log, fresh=True)
    assert attempt.wait(None) == 0, attempt.words
    expected = outcome(peace)
    most = 1.5 * _work_to_first_row(arguments, place)
    while tally.done < kills:
        generator = random.Random(f"{seed} {name} {tally.runs}")
        out = place / f"war-{tally.runs}"
        shutil.rmtree(out, ignore_errors=True)  # of a drill that was itself interrupted
        killed = fresh_kills = 0
        while True:
            fresh = generator.random() < FRESH
            attempt = Attempt([*arguments, "--out", str(out)], log, fresh=fresh)
            # While it is built, continued and saved: soon, so that a run is killed many times.
            work = generator.uniform(0.0, most + (IMPORTS if fresh else 0.0))
            alone = killed == KILLS_A_RUN or tally.done + killed >= kills
            code = attempt.wait(SLOWEST) if alone else attempt.wait_for_work(work)
            if code is None:
                attempt.kill()
            if code is not None or alone:
                break
            killed += 1
            fresh_kills += fresh
        different = differences(outcome(out), expected) if code == 0 else [f"exit code {code}"]
        if different:
            tally.failures.append(f"run {tally.runs}: {', '.join(different)}; {attempt.words}")
            print(f"{name}, {tally.failures[-1]}", flush=True)
            out.rename(place / f"failed-{tally.runs}")
        shutil.rmtree(out, ignore_errors=True)
        tally.runs += 1
        tally.done += killed
        tally.fresh += fresh_kills
        after()
        print(f"{name}: {tally.done} kills, {len(tally.failures)} failures", flush=True)
