"""The tutorials run without an error, and their outputs are small and name no folder."""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SHORTER = {
    "bonus_in_my_agent": {"UPDATES, SEEDS = 16, (0, 1, 2)": "UPDATES, SEEDS = 3, (0, 1)"},
    "compare_bonuses": {
        "seeds = 3": "seeds = 2",
        '"size": 11': '"size": 5',  # is solved soon, so that there are first rewards to compare
        "steps = 20_000": "steps = 6_000",
    },
    "my_own_task": {"--steps 12000": "--steps 6000"},
}
"""What the test trains instead of the budgets with which the outputs were made."""
FOLDERS = re.compile(r"/(?:home|root|work|Users|tmp|mnt|opt|var)/|[A-Z]:\\")


def shorten(notebook, changes):
    """Replaces text that must be in one cell each."""
    for long, short in changes.items():
        [cell] = [cell for cell in notebook.cells if long in cell.source]
        cell.source = cell.source.replace(long, short)


def outputs(notebook):
    """All outputs as text, but for images."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    parts = [output.get("data", {"text": output.get("text", "")}) for output in found]
    return "\n".join(text for each in parts for kind, text in each.items() if "image" not in kind)


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_was_run_in_order_and_is_small(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in out.get("data", {}) for cell in code for out in cell.outputs)
    assert not FOLDERS.findall(outputs(notebook))
    assert "\x1b" not in outputs(notebook)  # no progress bars, no colors
    assert path.stat().st_size <= 150_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path):
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (path.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.render
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    commands = Path(sys.executable).parent  # has `mimex`
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):  # nothing is written to the home folder
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "run"
    folder.mkdir()
    notebook = nbformat.read(path, as_version=4)
    shorten(notebook, SHORTER[path.stem])
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=where).execute()
    text = outputs(notebook)
    assert len(text) > 200
    assert not [place for place in (Path.home(), ROOT, tmp_path) if f"{place}{os.sep}" in text]
