"""A machine that looks for ways to lose data, to crash and to hang.

    python -m benchmarks.drills --kills 1000 --inputs 10000 --write

Kills: an on-policy training, an off-policy one and a study are ended by SIGKILL at random moments
and started again by the same command. What comes out must equal what comes out undisturbed, byte
for byte but for times (``benchmarks.drill_kills``).

Inputs: a random file of a run folder is damaged, and the run continued, evaluated
or reported; a command line with random flags and values; a call of the library with random
arguments, both drawn from the real signatures. Each must work, or be refused in one line that
names the file, flag or argument, and change nothing (``benchmarks.drill_inputs``). Each input is
known by its number: the same ``--seed`` and ``--only`` make it again.

Where it stopped is kept in ``--state``: the same command goes on there, and several, with other
``--drills`` each, may share it. Inputs that failed are tried again with ``--again``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from benchmarks.drill_inputs import INPUTS, SHARES, input_drill
from benchmarks.drill_kills import KILLS, Tally, kill_drill
from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "drills.md"


class State:
    """What a drill has done so far, in a file of its own.

    Args:
        folder: Where the file is.
        name: Of the drill.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name.replace(' ', '-')}.tally.json"
        self.place = self.path.with_suffix("")
        self.tally = Tally(**json.loads(self.path.read_text())) if self.path.exists() else Tally()

    def save(self) -> None:
        aside = self.path.with_suffix(".writing")
        aside.write_text(json.dumps(asdict(self.tally), indent=1))
        aside.replace(self.path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    drills = [*KILLS, *INPUTS]
    parser.add_argument("--kills", type=int, default=30, help="over three kinds of runs")
    parser.add_argument("--inputs", type=int, default=300, help="of three kinds")
    parser.add_argument("--drills", nargs="*", default=drills, choices=drills, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the one input of each kind to try")
    parser.add_argument("--again", action="store_true", help="first try inputs again that failed")
    parser.add_argument("--state", type=Path, help="a folder: where to go on, and to work in")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.state or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        states = {name: State(folder, name) for name in drills}
        asked = {name: round(args.kills * share) for name, share in KILLS.items()}
        asked |= {name: round(args.inputs * share) for name, share in SHARES.items()}
        for name in args.drills:
            state = states[name]
            if name in KILLS:
                if state.tally.done < asked[name]:
                    kill_drill(name, asked[name], args.seed, state.place, state.tally, state.save)
                continue
            numbers: Iterable[int] = range(state.tally.done, asked[name])
            again: list[int] = []
            if args.again:
                again = [int(failure.partition(":")[0]) for failure in state.tally.failures]
                state.tally.failures.clear()
            if args.only is not None:
                state.tally, numbers = Tally(), [args.only]
            for some, counted in ((again, False), (numbers, True)):
                input_drill(
                    *(name, some, args.seed, state.place, state.tally, state.save), counted=counted
                )
        tallies = {name: state.tally for name, state in states.items()}
    size = f"--kills {args.kills} --inputs {args.inputs} --seed {args.seed}"
    text = table(tallies, asked, f"python -m benchmarks.drills {size} --write")
    print(text)
    if args.write:
        RESULTS.write_text("# Drills\n\n" + text)
    failures = sum(len(tally.failures) for tally in tallies.values())
    if failures:
        raise SystemExit(f"{failures} failures")


def table(tallies: dict[str, Tally], asked: dict[str, int], command: str) -> str:
    """What was tried, in Markdown."""
    lines = ["| drill | kills or inputs | failures |", "|---|---|---|"]
    for name, tally in tallies.items():
        tried = f"{tally.done:,}" + (f" of {asked[name]:,}" if tally.done < asked[name] else "")
        if name in KILLS:
            tried += f" kills of {tally.runs:,} runs, {tally.fresh:,} of them of new processes"
        lines.append(f"| {name} | {tried} | {len(tally.failures)} |")
    unfinished = any(tally.done < asked[name] for name, tally in tallies.items())
    note = ["", "Not finished: the same command with the same `--state` goes on."] * unfinished
    return "\n".join([f"`{command}` on {describe()}", "", *lines, *note]) + "\n"


if __name__ == "__main__":
    main()
