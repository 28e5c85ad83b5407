"""Trains with one of the bonuses that are not in the library (`benchmarks.probes`).

    python -m benchmarks.candidates train FrankaReachUp --bonus fall --out runs/fall --seed 100

The command line is that of `mimex train`.
"""

from __future__ import annotations

from mimex.bonus import BONUSES

PROBES = {
    "fall": "benchmarks.probes:Fall",
    "disagree": "benchmarks.probes:Disagree",
    "newest": "benchmarks.probes:Newest",
    "projected": "benchmarks.probes:Projected",
    "whitened": "benchmarks.probes:Whitened",
}
BONUSES |= PROBES

from mimex.cli import main  # noqa: E402 (settings are made from what is there on import)

if __name__ == "__main__":
    raise SystemExit(main())
