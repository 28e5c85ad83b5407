"""Kills a training run again and again, and compares what comes out with a run left in peace.

    python -m benchmarks.kill_drill --kills 20 --write

The disturbed run is ended by SIGKILL at random moments and started again by the same command. At
the end both runs must have the same metrics (but for time/) and the same last checkpoint, byte
for byte, and no kill may cost more than the steps since the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "kill_drill.md"
CHECKPOINT_EVERY = 4096  # environment steps


def command(out: Path, steps: int) -> list[str]:
    return [
        sys.executable, "-m", "mimex.cli", "train", "FrankaReach", "--bonus", "mimex",
        "--steps", str(steps), "--envs", "32", "--threads", "1", "--out", str(out),
        "--eval.every", "16384", "--eval.episodes", "4",
        "--track.checkpoint-every", str(CHECKPOINT_EVERY),
    ]  # fmt: skip


def newest_checkpoint(out: Path) -> Path | None:
    return max((out / "checkpoints").glob("step_*.safetensors"), default=None)


def saved_step(out: Path) -> int:
    newest = newest_checkpoint(out)
    return 0 if newest is None else int(newest.stem.removeprefix("step_"))


def metrics(out: Path) -> list[dict[str, float]]:
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def disturbed(out: Path, steps: int, kills: int, generator: random.Random) -> tuple[int, int]:
    """Trains to the end through the kills: how many there were, and the most steps one cost."""
    done = worst = 0
    while True:
        run = subprocess.Popen(
            command(out, steps), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        seconds = generator.uniform(3.0, 9.0) if done < kills else None
        try:
            _, errors = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            done += 1
            reached = (
                metrics(out)[-1]["step"] if (out / "metrics.jsonl").exists() and metrics(out) else 0
            )
            worst = max(worst, int(reached) - saved_step(out))
            print(f"kill {done}: at step {reached:,.0f}, saved {saved_step(out):,}", flush=True)
            continue
        if run.returncode:
            raise SystemExit(f"the run failed:\n{errors.decode()}")
        return done, worst


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peace, war = Path(folder) / "peace", Path(folder) / "war"
        start = time.monotonic()
        subprocess.run(command(peace, args.steps), check=True, stdout=subprocess.DEVNULL)
        undisturbed = time.monotonic() - start
        done, worst = disturbed(war, args.steps, args.kills, random.Random(args.seed))
        same_metrics = metrics(peace) == metrics(war)
        last, other = newest_checkpoint(peace), newest_checkpoint(war)
        same_state = (
            last is not None
            and other is not None
            and (last.name == other.name and last.read_bytes() == other.read_bytes())
        )
    text = (
        f"`python -m benchmarks.kill_drill --kills {args.kills} --steps {args.steps} --write` on "
        f"{describe()}\n\n"
        f"- {done} kills in a run of {args.steps:,} steps ({undisturbed:.0f} s left in peace)\n"
        f"- most steps lost to a kill: {worst:,} (a checkpoint every {CHECKPOINT_EVERY:,})\n"
        f"- metrics equal to the undisturbed run's: {same_metrics}\n"
        f"- last checkpoint equal byte for byte (weights, optimizers, bonus, environments, "
        f"generators): {same_state}\n"
    )
    print(text)
    if args.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("# SIGKILL drill\n\n" + text)
    if not (same_metrics and same_state and done == args.kills):
        raise SystemExit("the drill failed")


if __name__ == "__main__":
    main()
