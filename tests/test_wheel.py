"""The wheel, built and installed into an environment of its own."""

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest
from tests.test_recipes import ROOT

USED = """
import json, pathlib, torch, mimex
bonus = mimex.MIMEx(feature_dim=3)
reward, _ = bonus.learn(mimex.Window(torch.randn(8, 5, 3)))
print(json.dumps([mimex.__version__, str(pathlib.Path(mimex.__file__)), len(reward)]))
"""


@pytest.mark.slow
def test_a_wheel_is_all_that_is_needed(tmp_path):
    """What the package depends on is lent by this environment: nothing large is downloaded."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = tmp_path / "built"
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", built, ROOT], check=True)
    (wheel,) = built.glob("mimex-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    kinds = (".py", ".toml", ".js", ".css", ".xml", ".json", ".safetensors")
    kept = [path for path in (ROOT / "src").rglob("*") if path.suffix in kinds]
    assert {str(path.relative_to(ROOT / "src")) for path in kept} <= packed
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run(
        [*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True
    )
    (site,) = (tmp_path / "clean" / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))  # after the wheel's own
    run = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path, "env": {}}
    version, file, scored = json.loads(subprocess.run([python, "-c", USED], **run).stdout)
    assert version in wheel.name
    assert file.startswith(str(site))
    assert scored == 8
    listed = subprocess.run([python.parent / "mimex", "envs"], **run).stdout
    assert "FrankaPick" in listed
