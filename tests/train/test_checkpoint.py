"""Damaged files are found, and a run continues from the newest checkpoint that is whole."""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from mimex.train.checkpoint import Checkpoints, DamagedCheckpointError, load, save
from mimex.train.packing import checksum, pack


def same(a: Any, b: Any) -> bool:
    """Equal as their files are; the files tell the bits of everything (tests of packing)."""
    return bool(checksum(*pack(a)) == checksum(*pack(b)))


def test_equal_states_make_equal_files(tmp_path):
    state = {"b": torch.ones(3), "a": np.arange(4), "c": [1, {"d": 2.5}]}
    save(tmp_path / "x", state)
    save(tmp_path / "y", OrderedDict(state))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_every_flipped_bit_is_found_or_harmless(tmp_path):
    state = {"w": torch.tensor([1.5, 2.0]), "n": np.zeros((0, 2)), "x": [1e5, "text", None]}
    path = tmp_path / "x"
    save(path, state)
    whole = path.read_bytes()
    found = 0
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert same(load(path), state)
            except DamagedCheckpointError:
                found += 1
    assert found > 8 * len(whole) * 0.99


def test_every_cut_is_found(tmp_path):
    path = tmp_path / "x"
    save(path, {"w": torch.ones(2), "x": 1})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedCheckpointError, match="x is truncated"):
            load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedCheckpointError):
        load(path)


def test_files_that_are_no_checkpoints_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({"w": torch.ones(2)}, path)
    with pytest.raises(DamagedCheckpointError, match=r"weights\.safetensors"):
        load(path)
    later = json.dumps({"format": 99})
    safetensors.torch.save_file({"w": torch.ones(2)}, path, {"mimex": later})
    with pytest.raises(DamagedCheckpointError, match=r"format 99; .* reads format 1"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


def test_a_pickle_is_not_opened(tmp_path):
    class Bomb:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "executed"),))

    torch.save({"state": Bomb()}, tmp_path / "x")
    with pytest.raises(DamagedCheckpointError):
        load(tmp_path / "x")
    assert not (tmp_path / "executed").exists()


def state_of(step: int) -> dict[str, Any]:
    return {"weights": torch.full((1000,), float(step)), "step": step}


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.stem[5:]) for path in folder.glob("step_*"))


def test_the_last_ones_are_kept_and_the_newest_is_given(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new" / "folder", keep=2)
    assert checkpoints.latest() is None
    assert checkpoints.best() is None
    for step in (5, 90, 100, 1000):
        checkpoints.save(step, state_of(step))
    assert steps_in(checkpoints.folder) == [100, 1000]
    step, state = Checkpoints(checkpoints.folder).latest()
    assert step == 1000
    assert same(state, state_of(1000))


def test_the_best_is_kept_apart_also_after_a_restart(tmp_path):
    scores = {1: 0.2, 2: 0.7, 3: None, 4: 0.7, 5: float("nan"), 6: 0.5}
    for step, score in scores.items():  # a new object each time, as after a kill
        Checkpoints(tmp_path, keep=1).save(step, state_of(step), score=score)
    step, state = Checkpoints(tmp_path).best()
    assert step == 2
    assert same(state, state_of(2))
    assert steps_in(tmp_path) == [6]
    Checkpoints(tmp_path).save(7, state_of(7), score=0.8)
    assert Checkpoints(tmp_path).best()[0] == 7


def test_a_best_one_whose_copy_was_not_made_is_copied_later(tmp_path):
    """A folder in place of the unfinished copy stands for a full disk, and for a kill."""
    folder = tmp_path / "checkpoints"
    Checkpoints(folder).save(1, state_of(1), score=0.1)
    save(folder / "step_000000000002.safetensors", whole_of(2, 0.7))
    in_the_way = folder / ".writing-best.safetensors"
    in_the_way.mkdir()
    with pytest.raises(OSError, match=r"cannot copy .*step_000000000002\.safetensors to .*best"):
        Checkpoints(folder).repair()
    in_the_way.rmdir()
    save(folder / "step_000000000003.safetensors", whole_of(3, 0.7))
    resumed = Checkpoints(folder)
    resumed.repair()
    assert resumed.best()[0] == 2  # the first of two that are as good
    for step in (4, 5, 6):
        resumed.save(step, state_of(step), score=0.5)
    assert Checkpoints(folder).best()[0] == 2


@pytest.mark.parametrize("score", [None, "high", float("nan"), [1]])
def test_a_score_that_is_no_number_is_not_the_best(tmp_path, score):
    save(tmp_path / "step_000000000001.safetensors", whole_of(1, score))
    Checkpoints(tmp_path).repair()
    assert Checkpoints(tmp_path).best() is None


def whole_of(step, score):
    """What the file of a step holds."""
    return {"mimex": "0", "step": step, "score": score, "state": state_of(step)}


def test_a_damaged_best_is_replaced_by_the_next_one_with_a_message(tmp_path, caplog):
    Checkpoints(tmp_path).save(1, state_of(1), score=5.0)
    (tmp_path / "best.safetensors").write_bytes(b"rubbish")
    with pytest.raises(DamagedCheckpointError, match=r"best\.safetensors"):
        Checkpoints(tmp_path).best()
    Checkpoints(tmp_path).save(2, state_of(2), score=1.0)
    assert "best.safetensors" in caplog.text
    assert Checkpoints(tmp_path).best()[0] == 2


def test_a_damaged_newest_falls_back_with_a_message_and_is_replaced(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, state_of(10))
    checkpoints.save(20, state_of(20))
    newest = tmp_path / "step_000000000020.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    resumed = Checkpoints(tmp_path, keep=2)
    with caplog.at_level(logging.WARNING):
        step, state = resumed.latest()
    assert step == 10
    assert same(state, state_of(10))
    assert "step_000000000020.safetensors" in caplog.text
    assert "Falling back" in caplog.text
    resumed.save(15, state_of(15))  # before the damaged one: that is gone
    assert steps_in(tmp_path) == [10, 15]


def test_when_all_are_damaged_no_run_starts_over_unnoticed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state_of(step))
    for path in tmp_path.glob("step_*"):
        path.write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match="all 2 checkpoints"):
        Checkpoints(tmp_path).latest()


def test_going_back_in_time_is_refused(tmp_path):
    Checkpoints(tmp_path).save(10, state_of(10))
    Checkpoints(tmp_path).save(10, state_of(10))  # again is fine
    with pytest.raises(ValueError, match=r"step=9 comes before .* step 10"):
        Checkpoints(tmp_path).save(9, state_of(9))
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)


def test_leftovers_of_a_kill_are_removed_and_never_read(tmp_path):
    Checkpoints(tmp_path).save(1, state_of(1))
    leftover = tmp_path / ".writing-step_000000000002.safetensors"
    leftover.write_bytes(b"half")
    assert Checkpoints(tmp_path).latest()[0] == 1
    Checkpoints(tmp_path).save(3, state_of(3))
    assert not leftover.exists()


@pytest.mark.parametrize("name", ["step_000000000001.safetensors", "best.safetensors"])
def test_what_is_no_file_is_named_before_a_save_would_meet_it(tmp_path, name):
    for step in (1, 2):
        Checkpoints(tmp_path).save(step, state_of(step), score=1.0)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match=f"{name} is not a regular file"):
        Checkpoints(tmp_path).latest()


def test_without_the_last_ones_the_best_is_taken_with_a_message(tmp_path, caplog):
    for step, score in ((1, 5.0), (2, 1.0)):
        Checkpoints(tmp_path).save(step, state_of(step), score=score)
    for path in tmp_path.glob("step_*"):
        path.write_bytes(path.read_bytes()[:-1])
    resumed = Checkpoints(tmp_path)
    step, state = resumed.latest()
    assert step == 1
    assert same(state, state_of(1))
    assert "using the best" in caplog.text
    resumed.save(2, state_of(2))
    assert Checkpoints(tmp_path).latest()[0] == 2


def test_a_file_of_another_format_is_neither_skipped_nor_removed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1))
    later = json.dumps({"format": 99})
    newest = tmp_path / "step_000000000002.safetensors"
    safetensors.torch.save_file({"w": torch.ones(2)}, newest, {"mimex": later})
    with pytest.raises(ValueError, match="use the version that wrote it"):
        Checkpoints(tmp_path).latest()


def hostile(shape):
    """A file with an empty tensor whose shape no program can hold."""
    state = {"format": 1, "sha256": "", "state": {"dict": {}}}
    header = {
        "__metadata__": {"mimex": json.dumps(state)},
        "t": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]},
    }
    content = json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [2**63, 0], [0, 2**64]])
def test_a_shape_beyond_all_memory_is_damage(tmp_path, shape):
    path = tmp_path / "x"
    path.write_bytes(hostile(shape))
    with pytest.raises(DamagedCheckpointError, match="x is truncated, altered or not"):
        load(path)


@pytest.mark.parametrize("step", [float("inf"), float("nan"), -1, 10**400, 2**63, "x", None])
def test_a_step_that_is_none_is_skipped(tmp_path, step, caplog):
    Checkpoints(tmp_path).save(1, state_of(1))
    whole = {"mimex": "0", "step": step, "score": None, "state": state_of(2)}
    save(tmp_path / "step_000000000002.safetensors", whole)
    assert Checkpoints(tmp_path).latest()[0] == 1
    assert "step_000000000002.safetensors does not contain a valid step" in caplog.text


def test_a_file_whose_content_is_no_state_is_damage(tmp_path):
    save(tmp_path / "x", {"a": 1})
    structure = [1, 2]
    header = {"format": 1, "sha256": checksum(structure, {}), "state": structure}
    safetensors.torch.save_file({}, tmp_path / "x", {"mimex": json.dumps(header)})
    with pytest.raises(DamagedCheckpointError):
        load(tmp_path / "x")
