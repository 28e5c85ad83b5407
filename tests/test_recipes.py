"""CONTRIBUTING's recipes, followed to the letter in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
STEP = re.compile(
    r"(?:In a new file|And a line in `(\w+)` of) `([\w./]+)`"
    r"(?:, a copy of `([\w./]+)`\.|:\n\n```python\n(.*?)^```)",
    re.DOTALL | re.MULTILINE,
)
TRAINED = """
from mimex.cli import main

small = ["--steps", "64", "--envs", "4", "--loop.rollout-steps", "8", "--ppo.minibatches", "2",
         "--ppo.epochs", "1", "--loop.bonus-minibatch", "16", "--eval.episodes", "2",
         "--threads", "1"]
short = [*small, "--world.episode-steps", "10"]
assert main(["train", "FrankaReach", "--bonus", "linear", "--linear.lr", "0.1", *short]) == 0
a2c = ["train", "FrankaReach", "--agent", "a2c", "--bonus", "rnd", "--a2c.lr", "0.01", *short]
assert main([*a2c, "--out", "a2c"]) == 0
assert main([*a2c, "--out", "a2c", "--steps", "128"]) == 0  # continues
assert main(["eval", "a2c", "--episodes", "2"]) == 0
assert main(["train", "SlowHover", *short]) == 0
assert main(["train", "planets/mars", *small, "--out", "mars", "--track.loggers", "csv"]) == 0
assert "64,eval/return," in open("mars/metrics.csv").read()
assert main(["train", "planets/marz", *small]) == 1
assert main(["envs"]) == 0
"""


def test_each_recipe_is_one_file_and_one_line_and_complete(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src")
    steps = STEP.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert [bool(table) for table, *_ in steps] == [False, True] * 6
    for table, name, copied, shown in steps:
        path, text = tmp_path / name, (ROOT / copied).read_text() if copied else shown
        if not table:
            assert not path.exists()
            path.write_text(text)
            continue
        assert len(text.splitlines()) == 1
        before, opening, after = re.split(rf"^({table}\b.*\{{)\n", path.read_text(), flags=re.M)
        path.write_text(f"{before}{opening}\n{text}{after}")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", TRAINED],
        env=environment | {"COLUMNS": "200"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "did you mean 'planets/mars'" in run.stderr
    assert "FrankaHover" in run.stdout  # every robot has every task
    assert "SlowMove" in run.stdout
    assert "cube within 4 cm of the goal" in run.stdout
