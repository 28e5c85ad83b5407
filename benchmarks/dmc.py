"""How fast pictures of the control suite are drawn: dm_control's own, the same ones, fast ones.

    python -m benchmarks.dmc --write

One picture of 84 x 84 after each of some steps of random actions, only the drawing timed, medians.
Each renderer has a process of its own, because Mesa reads its number of threads once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from mimex.envs.dmc_physics import load_suite
from mimex.envs.dmc_tasks import PUBLISHED, camera_of, domain_and_task

RESULTS = Path(__file__).parent / "results" / "dmc.md"
SIZE = 84
RENDERERS = {  # by name: ours or dm_control's, the quality, threads
    "dm_control": None,
    "published, 1 thread": ("published", 1),
    "published, 2 threads": ("published", 2),
    "fast, 1 thread": ("fast", 1),
}


def measure(renderer: str, pictures: int) -> dict[str, tuple[float, str]]:
    """Pictures per second, and a digest of them, of every task; in this process."""
    results = {}
    for task in PUBLISHED:
        environment = load_suite(task)
        environment.task.random.seed(0)
        environment.reset()
        draw = drawer(renderer, environment, camera_of(domain_and_task(task)[0]))
        spec = environment.action_spec()
        actions = np.random.default_rng(0).uniform(
            spec.minimum, spec.maximum, (pictures, *spec.shape)
        )
        times, digest = [], hashlib.sha256()
        for action in actions:
            environment.step(action)
            start = time.perf_counter()
            picture = draw()
            times.append(time.perf_counter() - start)
            digest.update(np.ascontiguousarray(picture).data)
        results[task] = (1 / statistics.median(times), digest.hexdigest())
    return results


def drawer(renderer, environment, camera):
    physics = environment.physics
    if RENDERERS[renderer] is None:
        return lambda: physics.render(SIZE, SIZE, camera_id=camera)
    from mimex.envs.dmc_camera import SuiteCamera

    quality, threads = RENDERERS[renderer]
    model, data = physics.model.ptr, physics.data.ptr
    ours = SuiteCamera(model, camera, (SIZE, SIZE), fast=quality == "fast", threads=threads)
    return lambda: ours.picture(model, data)


def in_child(renderer: str, pictures: int) -> dict[str, tuple[float, str]]:
    command = [sys.executable, "-m", "benchmarks.dmc", "--child", renderer]
    settings = {name: v for name, v in os.environ.items() if name != "LP_NUM_THREADS"}
    answer = subprocess.run(
        [*command, "--pictures", str(pictures)],
        env=settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


def table(pictures: int) -> list[str]:
    found = {renderer: in_child(renderer, pictures) for renderer in RENDERERS}
    lines = ["| task | " + " | ".join(RENDERERS) + " | same pixels |", "|---" * 6 + "|"]
    for task in PUBLISHED:
        own, own_digest = found["dm_control"][task]
        cells = [f"{own:,.0f}"]
        for renderer in list(RENDERERS)[1:]:
            speed, _ = found[renderer][task]
            cells.append(f"{speed:,.0f} ({speed / own:.1f}x)")
        same = all(
            found[renderer][task][1] == own_digest for renderer in RENDERERS if "pub" in renderer
        )
        lines.append(f"| {task} | {' | '.join(cells)} | {'yes' if same else 'NO'} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--child", choices=list(RENDERERS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.pictures)))
        return
    cores = len(os.sched_getaffinity(0))
    text = "\n".join(
        [
            "# Pictures of the control suite",
            "",
            "`python -m benchmarks.dmc --write`: pictures of 84 x 84 per second, and how many "
            "times dm_control's own rate (which draws with as many threads as there are cores). "
            f"{cores} cores ({platform.machine()}), Python {platform.python_version()}, no GPU. "
            "Same pixels: whether the published ones equal dm_control's, all of them.",
            "",
            *table(options.pictures),
            "",
        ]
    )
    print(text)
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
