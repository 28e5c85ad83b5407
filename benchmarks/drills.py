"""A machine that looks for ways to lose data, to crash and to hang.

    python -m benchmarks.drills --kills 1000 --inputs 10000 --write

Kills: an on-policy training, an off-policy one and a study are ended by SIGKILL at random moments
and started again by the same command. What comes out must equal what comes out undisturbed: the
metrics (but for time/) and the last checkpoint, byte for byte.

Inputs, in equal parts: a random file of a run folder is damaged, and the run continued, evaluated
or reported; a command line with random flags and values; a call of the library with random
arguments, both drawn from the real signatures. Each must work, or be refused in one line that
names the file, flag or argument, and change nothing. Each input is known by its number: the same
``--seed`` and ``--only`` make it again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.drill_inputs import api_call, command_line, damage
from benchmarks.machine import describe
from mimex.cli import main as mimex

RESULTS = Path(__file__).parent / "results" / "drills.md"
PATIENCE = 60  # seconds that an input may take before it counts as a hang

PPO = (
    *("FrankaReach", "--bonus", "mimex", "--envs", "4", "--loop.rollout-steps", "8"),
    *("--ppo.epochs", "2", "--ppo.minibatches", "2", "--loop.bonus-minibatch", "16"),
    *("--world.episode-steps", "13", "--threads", "1", "--track.checkpoint-every", "96"),
    *("--eval.every", "320", "--eval.episodes", "2"),
)
DRQV2 = (
    *("dmc/cartpole_swingup", "--observation", "state", "--bonus", "mimex", "--threads", "1"),
    *("--off-policy.report-every", "250", "--suite.action-repeat", "50", "--drqv2.batch", "8"),
    *("--drqv2.seed-steps", "12", "--drqv2.random-steps", "8", "--drqv2.hidden", "16"),
    *("--track.checkpoint-every", "750", "--eval.every", "1750", "--eval.episodes", "1"),
)
STUDY = """
tasks = ["FrankaReach"]
seeds = 1
[settings]
envs = 4
loop = { rollout_steps = 8, bonus_minibatch = 16 }
ppo = { minibatches = 2, epochs = 2 }
world.episode_steps = 13
eval = { episodes = 2, every = 320 }
track.checkpoint_every = 96
[axes.method]
none = { bonus = "none" }
rnd = { bonus = "rnd" }
[scales.cpu.settings]
steps = 1600
"""


def rows(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run without times."""
    path = run / "metrics.jsonl"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict):
                found.append({k: v for k, v in row.items() if not k.startswith("time/")})
    return found


def _runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("metrics.jsonl"))


def outcome(folder: Path) -> dict[str, Any]:
    """What must not depend on kills: of all runs at or below a folder."""
    found: dict[str, Any] = {}
    for run in _runs(folder):
        last = max((run / "checkpoints").glob("step_*.safetensors"))
        found[str(run.relative_to(folder))] = rows(run), last.name, last.read_bytes()
    return found


# Kills ---------------------------------------------------------------------------------------


def kill_drill(name: str, kills: int, generator: random.Random, place: Path) -> Counter[str]:
    """Kills runs of one kind until there were so many; compares each that ends with a peaceful."""
    (place / "study.toml").write_text(STUDY)
    arguments = {
        "on-policy training": ["train", *PPO, "--steps", "3200"],
        "off-policy training": ["train", *DRQV2, "--steps", "10000"],
        "study": ["study", "run", str(place / "study.toml"), "--jobs", "2", "--no-report"],
    }[name]

    def start(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "mimex.cli", *arguments, "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    began = time.monotonic()
    peaceful = start(place / "peace")
    while peaceful.poll() is None and not any(map(rows, _runs(place / "peace"))):
        time.sleep(0.05)
    first_row = time.monotonic() - began
    _, words = peaceful.communicate()
    assert peaceful.returncode == 0, words.decode()
    expected = outcome(place / "peace")
    counts: Counter[str] = Counter()
    while counts["kills"] < kills:
        out = place / f"war-{counts['runs']}"
        counts["runs"] += 1
        while True:
            process = start(out)
            # While it is imported, continued and saved: soon, so that a run is killed many times.
            wait = generator.uniform(0.0, 1.5 * first_row)
            try:
                _, words = process.communicate(timeout=wait if counts["kills"] < kills else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                counts["kills"] += 1
                continue
            break
        if process.returncode != 0 or outcome(out) != expected:
            counts["failures"] += 1
            print(f"{name}, run {counts['runs']}: {words.decode()[-500:]}", flush=True)
        shutil.rmtree(out)
        print(f"{name}: {counts['kills']} kills, {counts['failures']} failures", flush=True)
    return counts


# Inputs --------------------------------------------------------------------------------------


class HangError(BaseException):
    """An input took too long; no handler of ours may swallow it."""


@contextlib.contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Interrupts what takes too long."""

    def hang(number: int, frame: Any) -> None:
        raise HangError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def said_by(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command and all that it said; anything it raises is its failure."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = mimex(arguments)
    except SystemExit as error:  # how tyro refuses
        code = int(error.code or 0)
    finally:
        logging.getLogger().removeHandler(handler)
    return code, out.getvalue()


def refused_well(code: int, said: str) -> str | None:
    """None if a command worked or was refused in a line of its own; else what is wrong."""
    if code in (0, 2):  # tyro's refusals are boxes of words
        return None
    last = said.strip().splitlines()[-1] if said.strip() else ""
    listed = "holds a run with other settings" in said
    if code != 1 or not (last.startswith("mimex: ") or listed):
        return f"ended with {code}: {said[-300:]}"
    return None


def damaged_folder(generator: random.Random, place: Path) -> tuple[str, str | None]:
    """Damages a file of a finished run, then uses the run."""
    name = generator.choice(["ppo", "drqv2"])
    arguments, steps, more, each = {
        "ppo": (PPO, 416, 480, 32),
        "drqv2": (DRQV2, 2000, 2500, 250),
    }[name]
    finished = place / name
    if not finished.exists():
        code, said = said_by(["train", *arguments, "--steps", str(steps), "--out", str(finished)])
        assert code == 0, said
    run = place / "damaged"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(finished, run)
    what = damage(generator, run)
    before = len(rows(run))
    metrics = run / "metrics.jsonl"
    content = metrics.read_bytes() if metrics.is_file() else None
    use = generator.choice(["train", "train", "train", "eval", "report"])
    code, said = said_by(
        {
            "train": ["train", *arguments, "--steps", str(more), "--out", str(run)],
            "eval": ["eval", str(run), "--episodes", "1"],
            "report": ["report", str(run), "-o", str(place / "page.html")],
        }[use]
    )
    wrong = refused_well(code, said)
    if wrong is None and (code or use != "train"):
        now = metrics.read_bytes() if metrics.is_file() else None
        wrong = None if now == content else "a refused or reading command changed the metrics"
    elif wrong is None:
        expected = (more - (each if name == "ppo" else 0)) // each
        found = len(rows(run))
        if found != expected and not any(word in said for word in ("lacks", "rows are now in")):
            wrong = f"{found} of {expected} rows, {before} before, and no word: {said[-300:]}"
    return f"{what}, then {use}", wrong


def random_command(generator: random.Random, place: Path) -> tuple[str, str | None]:
    """A command line of random flags and values, tiny where it works."""
    out = place / "command"
    shutil.rmtree(out, ignore_errors=True)
    words = command_line(generator, PPO, out)
    code, said = said_by(words)
    return " ".join(words), refused_well(code, said)


def random_call(generator: random.Random, place: Path) -> tuple[str, str | None]:
    """A call of the library with random arguments."""
    return api_call(generator)


INPUTS: dict[str, Callable[[random.Random, Path], tuple[str, str | None]]] = {
    "damaged file of a run folder": damaged_folder,
    "random command line": random_command,
    "random call of the library": random_call,
}


def input_drill(name: str, numbers: range, seed: int, place: Path) -> Counter[str]:
    """Tries the inputs of one kind that have these numbers."""
    counts: Counter[str] = Counter()
    for number in numbers:
        generator = random.Random(f"{seed} {name} {number}")
        what = "?"
        try:
            with patience(PATIENCE):
                what, wrong = INPUTS[name](generator, place)
        except (Exception, HangError) as error:
            wrong = f"{type(error).__name__}: {error}"
        counts["inputs"] += 1
        if wrong is not None:
            counts["failures"] += 1
            print(f"{name} {number}: {what}\n    {wrong}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30, help="over three kinds of runs")
    parser.add_argument("--inputs", type=int, default=300, help="of three kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the one input of each kind to try")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    table = ["| drill | kills or inputs | failures |", "|---|---|---|"]
    failures = 0
    kinds = ("on-policy training", "off-policy training", "study")
    for name in kinds if args.kills else ():
        with tempfile.TemporaryDirectory() as folder:
            generator = random.Random(f"{args.seed} {name}")
            counts = kill_drill(name, -(-args.kills // len(kinds)), generator, Path(folder))
        failures += counts["failures"]
        tried = f"{counts['kills']} kills of {counts['runs']} runs"
        table.append(f"| {name} | {tried} | {counts['failures']} |")
    for name in INPUTS:
        numbers = range(-(-args.inputs // len(INPUTS)))
        numbers = numbers if args.only is None else range(args.only, args.only + 1)
        with tempfile.TemporaryDirectory() as folder:
            counts = input_drill(name, numbers, args.seed, Path(folder))
        failures += counts["failures"]
        table.append(f"| {name} | {counts['inputs']} | {counts['failures']} |")
    command = f"python -m benchmarks.drills --kills {args.kills} --inputs {args.inputs} --write"
    text = "\n".join([f"`{command}`, seed {args.seed}, on {describe()}", "", *table]) + "\n"
    print(text)
    if args.write:
        RESULTS.write_text("# Drills\n\n" + text)
    if failures:
        raise SystemExit(f"{failures} failures")


if __name__ == "__main__":
    main()
