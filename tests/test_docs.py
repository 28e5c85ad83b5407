"""Every code block of the documentation runs, and the pages build without warnings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if "```python" in page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_blocks_run_in_their_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    names: dict = {"__name__": "docs"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.slow
def test_pages_build_without_warnings(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    run = subprocess.run([*build, DOCS, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "index.html").exists()


def test_every_test_that_the_page_on_safety_names_is_there():
    page = (DOCS / "safety.md").read_text()
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    named = re.findall(r"::(test_\w+)", page)
    assert len(named) > 60
    assert [name for name in named if f"def {name}(" not in tests] == []
