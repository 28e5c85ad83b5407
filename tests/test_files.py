"""A file is replaced whole or not at all."""

from __future__ import annotations

import pytest

from mimex.files import replacing


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
