"""Your own bonus, named by its module, works on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.rnd import RND

MODULE = '''
from typing import Unpack

from mimex import MIMEx, RND
from mimex.bonus.prediction import Shared


class Slow(RND):
    """RND with a low learning rate."""


class Half(MIMEx):
    """MIMEx on every second feature."""

    def __init__(
        self, feature_dim: int | None = None, *, lr: float = 3e-3, **shared: Unpack[Shared]
    ):
        super().__init__(feature_dim, lr=lr, **shared, encoder=lambda features: features[:, ::2])
'''
SCRIPT = """
from mimex.bonus import BONUSES

BONUSES |= {"slow": "my_bonuses:Slow", "half": "my_bonuses:Half"}

from mimex.cli import main

raise SystemExit(main())
"""


def train(folder: Path, command: str) -> None:
    (folder / "my_bonuses.py").write_text(MODULE)
    (folder / "train.py").write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "train.py", *command.split(), "--threads", "1", "--out", "run"],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def test_a_full_import_path_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BONUSES, "mine", "mimex.bonus.rnd:RND")
    assert bonus_class("mine") is RND


def test_a_script_trains_with_the_settings_of_its_bonus(tmp_path: Path) -> None:
    train(tmp_path, "train gym/mimex/DeepSea-v0 --bonus slow --slow.lr 1e-5 --steps 512 --envs 4")
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["bonus"] == "slow"
    assert saved["slow"]["lr"] == 1e-5


def test_a_bonus_with_an_encoder_of_another_width_trains(tmp_path: Path) -> None:
    command = "train gym/mimex/FlagCar-v0 --bonus half --envs 4 --loop.rollout-steps 32"
    train(tmp_path, f"{command} --steps 512 --eval.every 256")
    train(tmp_path, f"{command} --steps 1024 --eval.every 256")  # continues
    [first, *_, last] = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first)["bonus/mean"] > 0
    assert json.loads(last)["step"] == 1024
