"""Runs that are killed at random moments and continued must end as if nothing had happened.

    python -m benchmarks.drills --kills 1000 --write

An on-policy training, an off-policy one, one over two processes and a study are ended by SIGKILL
at random moments and started again by the same command, until they finish. Every file must then
equal that of an undisturbed run, byte for byte, except for times. Of the run over two processes
only one is killed: the other must end by itself within a minute.

Importing PyTorch and MuJoCo takes seconds. So most attempts are forked from a process that has
imported everything and done nothing; the others (``FRESH``), and all processes that a study or a
run starts, are new from the first instruction on. ``--state`` keeps what was done: the same command
continues there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "drills.md"

FRESH = 0.06
"""Share of attempts that are new processes; the first, undisturbed run always is one."""

KILLS_A_RUN = 20
"""After so many kills a run is left alone, so that results are compared often."""

SLOWEST = 1800.0
"""Seconds after which a run that is left alone counts as hanging, on a busy machine."""

HANGS = 60.0
"""Seconds after a kill in which the other processes of a run must have ended."""

POLL = 0.005  # seconds between two checks
IMPORTS = 2.0  # CPU seconds that a new process needs in addition to a forked one

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

PROCESSES = "training over two processes"
KILLS = {"on-policy training": 0.45, "off-policy training": 0.45, PROCESSES: 0.05, "study": 0.05}
"""What is killed, and its share of all kills: few of those that start new processes."""

WARM = (
    *("torch._dynamo", "mujoco.batch", "dm_control.suite", "tyro", "rich.live", "scipy.stats"),
    *("mimex.commands.train", "mimex.commands.study", "mimex.commands.build"),
    *("mimex.envs.manipulation", "mimex.envs.dmc_vector", "benchmarks.drills"),
)
"""Modules that the process has imported from which attempts are forked."""

_TIMED = ("about.json", ".lock", "metrics.before.jsonl", "logs")


@dataclass
class Tally:
    """Kills, finished runs and failures of a drill so far."""

    done: int = 0  # kills
    runs: int = 0
    fresh: int = 0  # kills of new processes
    failures: list[str] = field(default_factory=list)


def rows(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run without times."""
    path = run / "metrics.jsonl"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                found.append({k: v for k, v in row.items() if not k.startswith("time/")})
    return found


def outcome(folder: Path) -> dict[str, Any]:
    """Return the contents of all files at or below a folder that must not depend on kills."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or any(part in _TIMED for part in name.parts):
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


def family(pid: int) -> list[int]:
    """Return a process and those that it has started, in their order."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            found += [int(path.parent.name)] * (parent == pid)
    return [pid, *sorted(found)]


def _stat(pid: int) -> list[str]:
    """Fields of a process from its state on; those of a zombie if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ["Z", *["0"] * 20]


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
        """Return the exit code; None if it still runs after so long."""
        if self._forked is not None:
            self._forked.join(seconds)
            return self._forked.exitcode
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """End it by SIGKILL and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait(None)

    def kill_one(self, generator: random.Random) -> str | None:
        """Kill one of its processes; return what is wrong if the others do not end."""
        everyone = family(self.pid)
        # The first is alone while it imports: prefer the others where there are any.
        victim = generator.choice([0, *3 * list(range(1, len(everyone)))])
        os.kill(everyone[victim], signal.SIGKILL)
        limit = time.monotonic() + HANGS
        code = self.wait(HANGS)
        while (left := [pid for pid in everyone if _stat(pid)[0] != "Z"]) and (
            time.monotonic() < limit
        ):
            time.sleep(POLL)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        # The first may have finished before it noticed that another one had died.
        expected = [-signal.SIGKILL] if victim == 0 else [1, 0]
        if left or code not in expected or "Traceback" in self.words:
            return f"process {victim} killed: exit code {code}, {len(left)} left; {self.words}"
        return None

    def wait_for_work(self, seconds: float) -> int | None:
        """Return the exit code; None if it still runs after so many CPU seconds.

        Unlike by the clock, attempts get equally far on a busy machine.
        """
        while (code := self.wait(POLL)) is None:
            used = sum(sum(map(int, _stat(pid)[11:13])) for pid in family(self.pid))
            if used / os.sysconf("SC_CLK_TCK") >= seconds:  # user and system time
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
    """Number of rows of all runs at or below a folder."""
    return sum(len(rows(path.parent)) for path in folder.rglob("metrics.jsonl"))


def _work_to_first_row(arguments: list[str], place: Path) -> float:
    """CPU seconds from the start of a forked attempt to its first row."""
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
    """Kill runs of one kind, and compare each that finishes with an undisturbed one.

    Args:
        name: One of ``KILLS``.
        kills: Total number, including those that the tally already has.
        seed: Seed of the moments, together with the number of the run.
        place: Working directory; runs that failed stay there.
        tally: Continues from its numbers.
        after: Called after every run that finished.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    place.mkdir(parents=True, exist_ok=True)
    (place / "study.toml").write_text(STUDY)
    arguments = {
        "on-policy training": ["train", *PPO, "--steps", "1600"],
        "off-policy training": ["train", *DRQV2, "--steps", "6000"],
        PROCESSES: ["train", *PPO, "--steps", "1600", "--processes", "2"],
        "study": ["study", "run", str(place / "study.toml"), "--jobs", "2", "--no-report"],
    }[name]
    undisturbed, log = place / "undisturbed", place / "log"
    shutil.rmtree(undisturbed, ignore_errors=True)
    attempt = Attempt([*arguments, "--out", str(undisturbed)], log, fresh=True)
    assert attempt.wait(None) == 0, attempt.words
    expected = outcome(undisturbed)
    most = 1.5 * _work_to_first_row(arguments, place)
    while tally.done < kills:
        generator = random.Random(f"{seed} {name} {tally.runs}")
        out = place / f"killed-{tally.runs}"
        shutil.rmtree(out, ignore_errors=True)  # of a drill that was itself interrupted
        killed = fresh_kills = 0
        different: list[str] = []
        while True:
            fresh = generator.random() < FRESH
            attempt = Attempt([*arguments, "--out", str(out)], log, fresh=fresh)
            # While it is built, continued and saved: soon, so that a run is killed many times.
            work = generator.uniform(0.0, most + (IMPORTS if fresh else 0.0))
            alone = killed == KILLS_A_RUN or tally.done + killed >= kills
            code = attempt.wait(SLOWEST) if alone else attempt.wait_for_work(work)
            if code is None and name == PROCESSES and not alone:
                different += filter(None, [attempt.kill_one(generator)])
            elif code is None:
                attempt.kill()
            if code is not None or alone:
                break
            killed += 1
            fresh_kills += fresh
        different += differences(outcome(out), expected) if code == 0 else [f"exit code {code}"]
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


class State:
    """The tally of a drill in a file.

    Args:
        folder: Where the file is.
        name: Name of the drill.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name.replace(' ', '-')}.tally.json"
        self.place = self.path.with_suffix("")
        self.tally = Tally(**json.loads(self.path.read_text())) if self.path.exists() else Tally()

    def save(self) -> None:
        aside = self.path.with_suffix(".writing")
        aside.write_text(json.dumps(asdict(self.tally), indent=1))
        aside.replace(self.path)


def table(tallies: dict[str, Tally]) -> str:
    """Return what was killed, in Markdown."""
    lines = ["| drill | kills | runs compared | kills of new processes | failures |"]
    lines.append("|---|---|---|---|---|")
    for name, tally in tallies.items():
        cells = (tally.done, tally.runs, tally.fresh, len(tally.failures))
        lines.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=40, help="total, over all kinds of runs")
    parser.add_argument("--drills", nargs="*", default=list(KILLS), choices=KILLS, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, help="folder to work and to continue in")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.state or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        states = {name: State(folder, name) for name in args.drills}
        for name, state in states.items():
            kills = round(args.kills * KILLS[name])
            if state.tally.done < kills:
                kill_drill(name, kills, args.seed, state.place, state.tally, state.save)
        tallies = {name: state.tally for name, state in states.items()}
    command = f"python -m benchmarks.drills --kills {args.kills} --seed {args.seed} --write"
    text = f"# Kill and resume\n\n`{command}` on {describe()}\n\n{table(tallies)}"
    print(text)
    if args.write:
        RESULTS.write_text(text)
    if failures := sum(len(tally.failures) for tally in tallies.values()):
        raise SystemExit(f"{failures} failures")


if __name__ == "__main__":
    main()
