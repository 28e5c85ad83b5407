"""Runs over two processes, one of which is killed at a random moment.

    python -m benchmarks.drill_processes --kills 20 --write

A run is started by ``mimex train --processes 2`` and one of its processes, the first or the other,
is ended by SIGKILL. All must then end by themselves within seconds, and the same command must
continue; what it leaves in the end must equal what an undisturbed run leaves, every file of it,
byte for byte, but for those that tell times (``benchmarks.drill_kills``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.drill_kills import PPO, SLOWEST, Attempt, differences, outcome
from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "drill_processes.md"

STEPS = 1600
FRESH = 0.3
POLL = 0.02  # seconds between two looks

KILLS_A_RUN = 5
"""After so many a run is left alone, so that what comes out is looked at often."""

HANGS = 60.0
"""Seconds after a kill in which all processes must have ended, on a machine with much to do."""


@dataclass
class Tally:
    """What the drill has done so far."""

    killed: list[int] = field(default_factory=list)  # which process, kill by kill
    seconds: list[float] = field(default_factory=list)  # from each kill to the end of all
    runs: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, words: str) -> None:
        self.failures.append(words)
        print(words, flush=True)


def family(pid: int) -> list[int]:
    """A process and those that it has started, in their order."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [int(path.parent.name)] * (parent == pid)
    return [pid, *sorted(found)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def kill_one(attempt: Attempt, generator: random.Random, tally: Tally) -> None:
    """Kills one of an attempt's processes, and waits for the end of all."""
    everyone = family(attempt.pid)
    # The first is alone while it imports: where there are others, rather one of them.
    victim = generator.choice([0, *3 * list(range(1, len(everyone)))])
    os.kill(everyone[victim], signal.SIGKILL)
    killed_at = time.monotonic()
    code = attempt.wait(HANGS)
    while any(map(_runs, everyone)) and time.monotonic() < killed_at + HANGS:
        time.sleep(0.01)
    tally.killed.append(victim)
    tally.seconds.append(time.monotonic() - killed_at)
    left = [pid for pid in everyone if _runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    # The first one may have come to its end before it could hear that another one had died.
    expected = [-signal.SIGKILL] if victim == 0 else [1, 0]
    if left or code not in expected or "Traceback" in attempt.words:
        tally.fail(
            f"kill {len(tally.killed)}, of process {victim} of {len(everyone)}: exit code {code}, "
            f"{len(left)} processes left; {attempt.words}"
        )


def wait_for_work(attempt: Attempt, seconds: float) -> int | None:
    """The exit code; None if it still runs when all its processes have used so much processor time.

    Other than by the clock, attempts come equally far on a machine that has more to do.
    """
    while (code := attempt.wait(POLL)) is None:
        used = 0
        for pid in family(attempt.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                used += sum(map(int, fields[11:13]))  # user, system
        if used / os.sysconf("SC_CLK_TCK") >= seconds:
            return None
    return code


def drill(kills: int, seed: int, place: Path) -> Tally:
    """Kills processes of runs until there were so many kills; compares each run that ends."""
    os.environ["OMP_NUM_THREADS"] = "1"
    tally = Tally()
    arguments = ["train", *PPO, "--steps", str(STEPS), "--processes", "2"]
    peace, log = place / "peace", place / "log"
    attempt = Attempt([*arguments, "--out", str(peace)], log, fresh=True)
    work = 0.0  # seconds of a processor that it needs
    while wait_for_work(attempt, work + 0.5) is None:
        work += 0.5
    assert attempt.wait(None) == 0, attempt.words
    expected = outcome(peace)
    generator = random.Random(f"{seed} processes")
    while len(tally.killed) < kills:
        out, left = place / f"war-{tally.runs}", min(KILLS_A_RUN, kills - len(tally.killed))
        while True:
            # Some are new processes from the first instruction on, others forked from a warm one;
            # what they start is always new.
            fresh = generator.random() < FRESH
            attempt = Attempt([*arguments, "--out", str(out)], log, fresh=fresh)
            patience = generator.uniform(0.0, work)
            code = wait_for_work(attempt, patience) if left else attempt.wait(SLOWEST)
            if code is not None or not left:
                break
            kill_one(attempt, generator, tally)
            left -= 1
        different = differences(outcome(out), expected) if code == 0 else [f"exit code {code}"]
        if different:
            tally.fail(f"run {tally.runs}: {', '.join(different)}; {attempt.words}")
        shutil.rmtree(out, ignore_errors=True)
        tally.runs += 1
        print(f"{len(tally.killed)} kills, {len(tally.failures)} failures", flush=True)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tally = drill(args.kills, args.seed, Path(scratch))
    first = tally.killed.count(0)
    command = (
        f"python -m benchmarks.drill_processes --kills {args.kills} --seed {args.seed} --write"
    )
    seconds = sorted(tally.seconds)
    text = (
        f"`{command}` on {describe()}\n\n"
        "| kills | of the first process | of the second | runs compared | all ended after (s), "
        "median and slowest | failures |\n|---|---|---|---|---|---|\n"
        f"| {len(tally.killed)} | {first} | {len(tally.killed) - first} | {tally.runs} | "
        f"{seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f} | {len(tally.failures)} |\n"
    )
    print(text)
    if args.write:
        RESULTS.write_text("# Kills of runs over two processes\n\n" + text)
    if tally.failures:
        raise SystemExit("\n".join(tally.failures))


if __name__ == "__main__":
    main()
