"""A file is replaced whole or not at all."""

from __future__ import annotations

import os

import pytest

from mimex.files import append_to, read_object, read_own, replacing


def test_the_new_file_appears_at_the_end_and_nothing_else_stays(tmp_path):
    path = tmp_path / "deep" / "down" / "x.txt"
    for text in ("old", "new"):
        with replacing(path) as aside:
            aside.write_text(text)
            assert aside.suffix == ".txt"
            assert not path.exists() or path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as aside:
            aside.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_wrote_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "x.txt"):
        pass


def test_a_link_in_place_of_the_unfinished_file_is_not_written_through(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (tmp_path / ".writing-x.txt").symlink_to(secret)
    with replacing(tmp_path / "x.txt") as aside:
        aside.write_text("new")
    assert secret.read_text() == "mine"
    assert (tmp_path / "x.txt").read_text() == "new"


def test_links_pipes_and_folders_are_neither_read_nor_appended_to(tmp_path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "nowhere", "pipe", "folder"):
        for function in (read_own, append_to):
            with pytest.raises(OSError, match=name):
                function(tmp_path / name)
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_named(tmp_path, content):
    path = tmp_path / "about.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"about\.json .* restore it"):
        read_object(path)


def test_a_folder_that_was_made_for_a_file_goes_with_it(tmp_path):
    for folder, there in ((tmp_path / "new", False), (tmp_path, True)):
        with pytest.raises(ZeroDivisionError), replacing(folder / "file") as aside:
            aside.write_text(str(1 / 0))
        assert folder.exists() == there
