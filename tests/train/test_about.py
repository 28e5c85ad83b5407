"""The source revision is found where there is one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mimex.train.about import git_revision


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
    command = ["git", *identity, *words]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_revision_is_the_commit_and_tells_of_changes(tmp_path):
    assert git_revision(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert git_revision(tmp_path) is None
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    git(tmp_path, "tag", "v1")  # a tag must not stand for the commit
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_revision(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert git_revision(tmp_path) == f"{commit}-dirty"
    assert git_revision(tmp_path / "missing") is None
