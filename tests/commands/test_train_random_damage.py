"""A random file of a run folder is damaged, and the run is continued, evaluated or reported."""

import random
import shutil

import pytest
from benchmarks.drills import DRQV2, PPO, rows

from mimex.cli import main

CONTENTS = (b"", b"{", b"[]", b"{}", b"3", b"null", b'"x', b"\xff\xfe", b"[" * 5000, bytes(64))
RUNS = {"ppo": (PPO, 416, 480, 14), "drqv2": (DRQV2, 2000, 2500, 10)}
"""Settings, steps of the finished and of the continued run, and rows of the latter."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run folders by agent, trained once."""
    place = tmp_path_factory.mktemp("finished")
    for name, (settings, steps, *_) in RUNS.items():
        assert main(["train", *settings, "--steps", str(steps), "--out", str(place / name)]) == 0
    return place


def damage(generator, run):
    """Damage one file of a run folder; return which and how."""
    path = generator.choice(sorted(p for p in run.rglob("*") if p.is_file()))
    content = path.read_bytes()
    at = generator.randrange(len(content) + 1)
    how = generator.choice(["gone", "cut", "flipped", "inserted", "replaced", "folder", "link"])
    path.unlink()
    if how == "cut":
        path.write_bytes(content[:at])
    elif how == "flipped" and content:
        changed = bytearray(content)
        for _ in range(generator.choice([1, 1, 8])):
            changed[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(bytes(changed))
    elif how == "inserted":
        path.write_bytes(content[:at] + generator.choice(CONTENTS) + content[at:])
    elif how == "replaced":
        path.write_bytes(generator.choice(CONTENTS))
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        elsewhere = run.parent / "elsewhere"
        elsewhere.write_bytes(content)
        path.symlink_to(elsewhere)
    return f"{path.relative_to(run)} {how} at {at}"


def contents(run):
    """All files of a folder, except for the one that says who is at work in it."""
    found = {}
    for path in run.rglob("*"):
        if path.is_symlink():
            found[path] = path.readlink()
        elif path.is_file() and path.name != ".lock":
            found[path] = path.read_bytes()
    return found


@pytest.mark.parametrize(
    "number", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 15))]
)
def test_damage_is_refused_by_name_or_survived_and_nothing_else_changes(
    number, finished, tmp_path, capsys
):
    generator = random.Random(f"0 damaged file of a run folder {number}")
    name = generator.choice(["ppo", "ppo", "drqv2"])
    settings, _, steps, expected = RUNS[name]
    run = shutil.copytree(finished / name, tmp_path / "run")
    what = damage(generator, run)
    before = contents(run)
    use = generator.choice(["train", "train", "train", "eval", "report"])
    capsys.readouterr()
    try:
        code = main(
            {
                "train": ["train", *settings, "--steps", str(steps), "--out", str(run)],
                "eval": ["eval", str(run), "--episodes", "1"],
                "report": ["report", str(run), "-o", str(tmp_path / "page.html")],
            }[use]
        )
    except SystemExit as refusal:  # how tyro refuses
        code = int(refusal.code or 0)
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert "Traceback" not in said, what
    if code == 1:
        assert str(run) in said, what
    if code or use != "train":
        assert contents(run) == before, f"{what}: {said[-300:]}"
    elif not any(words in said for words in ("lacks", "rows are now in")):
        assert len(rows(run)) == expected, f"{what}: {said[-300:]}"
