"""Run folders as `mimex train` leaves them, made of numbers that are known."""

import json

import numpy as np
import pytest

from mimex.train.coverage import HandPlanes
from mimex.train.novelty import NoveltyMap, write_record

STEPS = 1000


@pytest.fixture(scope="session")
def write_run_to():
    """Writes a run folder: metrics are functions of the share of the run that is done."""

    def write(
        folder,
        *,
        task="FrankaReach",
        bonus="mimex",
        seed=0,
        rows=20,
        done=1.0,
        metrics=None,
        **more,
    ):
        folder.mkdir(parents=True)
        config = {"task": task, "bonus": bonus, "seed": seed, "steps": STEPS} | more
        (folder / "config.json").write_text(json.dumps(config))
        about = {"versions": {"python": "3.11", "mimex": "0.1"}, "command": f"mimex train {task}"}
        (folder / "about.json").write_text(json.dumps(about))
        curves = metrics or {"eval/success": lambda x: x, "bonus/mean": lambda x: 1 - x / 2}
        with (folder / "metrics.jsonl").open("w") as file:
            for share in np.linspace(done / rows, done, rows):
                values = {metric: float(curve(share)) for metric, curve in curves.items()}
                file.write(json.dumps({"step": round(share * STEPS)} | values) + "\n")
        return folder

    return write


@pytest.fixture
def write_run(tmp_path, write_run_to):
    """Writes a run folder of some name into ``runs``."""
    return lambda name, **settings: write_run_to(tmp_path / "runs" / name, **settings)


@pytest.fixture(scope="session")
def write_maps():
    """Writes novelty records with one hand position each, or some."""

    def write(folder, records, films=()):
        novelty = NoveltyMap(HandPlanes())
        for step, hand, bonus in records:
            hands = np.atleast_2d(hand)
            novelty.visit(hands, np.full(len(hands), bonus))
            write_record(folder, step, novelty, list(films))

    return write
