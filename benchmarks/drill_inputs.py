"""Random inputs, and what may come of them, for ``benchmarks.drills``.

Each must work, or be refused in one line that names the file, flag or argument, and change
nothing. They are tried in this process: a traceback would end it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.drill_draws import api_call, command_line, damage
from benchmarks.drill_kills import DRQV2, PPO, Tally, rows
from mimex.cli import main as mimex

PATIENCE = 20.0, 900.0  # seconds of work, and by the clock, after which an input hangs


class HangError(BaseException):
    """An input took too long; no handler of ours may swallow it."""


@contextlib.contextmanager
def patience(work: float, wait: float) -> Iterator[None]:
    """Interrupts what takes too long: of a processor's time, or by the clock."""

    def hang(number: int, frame: Any) -> None:
        raise HangError(f"took more than {work} s of work, or {wait} s")

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, work),
        signal.SIGALRM: (signal.ITIMER_REAL, wait),
    }
    before = {number: signal.signal(number, hang) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


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
    if code in (
        128 + signal.SIGINT,
        128 + signal.SIGTERM,
    ):  # meant for us; training saved and ended
        raise KeyboardInterrupt("the drill was stopped; the same command goes on")
    return code, out.getvalue()


def refused_well(code: int, said: str, names: Iterable[str]) -> str | None:
    """None if a command worked, or was refused in a line of its own; else what is wrong.

    Args:
        code: With which it ended.
        said: All that it printed.
        names: One of these has to be in the line.
    """
    if "Traceback" in said:
        return f"a traceback: {said[-600:]}"
    if code == 0 or (code == 2 and said.strip()):  # tyro's refusals are boxes of words
        return None
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if "holds a run with other settings" in said:  # the one that lists
        return None
    if code != 1 or not last.startswith("mimex: "):
        return f"ended with {code}: {said[-300:]}"
    if not any(name in last for name in names):
        return f"names nothing: {last[:600]}"
    return None


def contents(folder: Path) -> dict[str, bytes | str]:
    """All files of a folder, but for the one that only says who is at work in it."""
    found: dict[str, bytes | str] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file() and path.name != ".lock":
            found[name] = path.read_bytes()
    return found


def damaged_folder(generator: random.Random, place: Path) -> tuple[str, str | None]:
    """Damages a file of a finished run, then uses the run."""
    name = generator.choice(["ppo", "ppo", "drqv2"])
    arguments, steps, more, each = {
        "ppo": (PPO, 416, 480, 32),
        "drqv2": (DRQV2, 2000, 2500, 250),
    }[name]
    finished = place / name
    if not finished.exists():
        made = place / "making"
        shutil.rmtree(made, ignore_errors=True)
        code, said = said_by(["train", *arguments, "--steps", str(steps), "--out", str(made)])
        assert code == 0, said
        made.rename(finished)
    run = place / "damaged"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(finished, run)
    file, how = damage(generator, run)
    before, content = len(rows(run)), contents(run)
    use = generator.choice(["train", "train", "train", "eval", "report"])
    code, said = said_by(
        {
            "train": ["train", *arguments, "--steps", str(more), "--out", str(run)],
            "eval": ["eval", str(run), "--episodes", "1"],
            "report": ["report", str(run), "-o", str(place / "page.html")],
        }[use]
    )
    wrong = refused_well(code, said, [str(run)])
    if wrong is None and (code or use != "train"):
        now = contents(run)
        changed = [
            name
            for name in sorted(content.keys() | now.keys())
            if content.get(name) != now.get(name)
        ]
        if changed:
            wrong = f"refused or only read ({said.strip()[-300:]}), but changed {changed}"
    elif wrong is None:
        expected = (more - (each if name == "ppo" else 0)) // each
        found = len(rows(run))
        if found != expected and not any(word in said for word in ("lacks", "rows are now in")):
            wrong = f"{found} of {expected} rows, {before} before, and no word: {said[-300:]}"
    return f"{name}: {file} {how}, then {use}", wrong


def random_command(generator: random.Random, place: Path) -> tuple[str, str | None]:
    """A command line of random flags and values, tiny where it works."""
    out = place / "command"
    shutil.rmtree(out, ignore_errors=True)
    words, given = command_line(generator, {"on": PPO, "off": DRQV2}, out)
    code, said = said_by(words)
    return " ".join(words), refused_well(code, said, [*given, "--bonus", "--out", str(out)])


def random_call(generator: random.Random, place: Path) -> tuple[str, str | None]:
    """A call of the library with random arguments."""
    return api_call(generator)


INPUTS: dict[str, Callable[[random.Random, Path], tuple[str, str | None]]] = {
    "damaged file of a run folder": damaged_folder,
    "random command line": random_command,
    "random call of the library": random_call,
}

SHARES = dict(zip(INPUTS, (0.15, 0.25, 0.6), strict=True))
"""Of all inputs: the fewer, the more work they are."""


def input_drill(
    name: str,
    numbers: Iterable[int],
    seed: int,
    place: Path,
    tally: Tally,
    after: Callable[[], None] = lambda: None,
    *,
    counted: bool = True,
) -> None:
    """Tries the inputs of one kind that have these numbers.

    Args:
        name: One of ``INPUTS``.
        numbers: Of the inputs.
        seed: Of the inputs, together with their numbers.
        place: A folder to work in.
        tally: Goes on from its numbers.
        after: Called after every input.
        counted: False for those that the tally has already.
    """
    place.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        generator = random.Random(f"{seed} {name} {number}")
        what = "?"
        try:
            with patience(*PATIENCE):
                what, wrong = INPUTS[name](generator, place)
        except (Exception, HangError) as error:
            wrong = f"{type(error).__name__}: {error}"
        tally.done += counted
        if wrong is not None:
            tally.failures.append(f"{number}: {what}: {wrong}")
            print(f"{name} {number}: {what}\n    {wrong}", flush=True)
        after()
