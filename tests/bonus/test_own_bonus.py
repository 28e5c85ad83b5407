"""A bonus of one's own, named by its module, is one of the command line's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.rnd import RND

MODULE = '''
from mimex import RND


class Slow(RND):
    """RND that is in no hurry."""
'''
SCRIPT = """
from mimex.bonus import BONUSES

BONUSES["slow"] = "my_bonuses:Slow"

from mimex.cli import main

raise SystemExit(main())
"""


def test_a_whole_path_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BONUSES, "mine", "mimex.bonus.rnd:RND")
    assert bonus_class("mine") is RND


def test_it_trains_from_a_script_with_its_settings(tmp_path: Path) -> None:
    (tmp_path / "my_bonuses.py").write_text(MODULE)
    (tmp_path / "train.py").write_text(SCRIPT)
    command = "train gym/mimex/DeepSea-v0 --bonus slow --slow.lr 1e-5 --steps 512 --envs 4"
    subprocess.run(
        [sys.executable, "train.py", *command.split(), "--threads", "1", "--out", "run"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["bonus"] == "slow"
    assert saved["slow"]["lr"] == 1e-5
