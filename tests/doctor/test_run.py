import io

import pytest
from rich.console import Console

from mimex.doctor import run_doctor

GOOD = """
from gymnasium.vector import SyncVectorEnv
from mimex.interop.vector import wrap_vector

def setup(make_env, bonus):
    return wrap_vector(SyncVectorEnv([make_env] * 2), bonus)

def broken(make_env, bonus):
    return wrap_vector(SyncVectorEnv([make_env] * 2), bonus, beta=0.0)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "my_training.py"
    path.write_text(GOOD)
    return path


def test_the_exit_code_and_the_table_say_whether_all_is_well(script):
    printed = Console(file=io.StringIO(), width=160)
    assert run_doctor(f"{script}:setup", printed) == 0
    assert "nothing wrong was found, but 3 checks could not tell" in printed.file.getvalue()
    assert run_doctor("my_training:broken", printed) == 1
    assert "BEFORE returns" in printed.file.getvalue()  # a remedy


def test_targets_that_are_none_are_named(script):
    with pytest.raises(ValueError, match="expected 'module:function'"):
        run_doctor("setup")
    with pytest.raises(ValueError, match=r"no file missing\.py"):
        run_doctor("missing.py:setup")
    with pytest.raises(ValueError, match="has no function nothing"):
        run_doctor(f"{script}:nothing")


def test_a_file_may_have_any_name(tmp_path):
    path = tmp_path / "2-json.try.py"
    path.write_text(GOOD)
    printed = Console(file=io.StringIO(), width=160)
    assert run_doctor(f"{path}:broken", printed) == 1


def test_a_package_that_is_not_installed_is_a_reason_and_not_well(monkeypatch):
    missing = {"a peer": (lambda **kwargs: None, "no_such_package")}
    monkeypatch.setattr("mimex.doctor.run.SETUPS", missing)
    printed = Console(file=io.StringIO(), width=160)
    assert run_doctor(console=printed) == 0
    assert "no_such_package is not installed" in printed.file.getvalue()
    assert "1 checks could not tell" in printed.file.getvalue()
