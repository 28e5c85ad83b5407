"""The wheel, in a new environment that has the packages of one extra alone."""

import os
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from tests.test_readme import BLOCKS
from tests.test_recipes import ROOT

from mimex.extras import pip_install

pytestmark = pytest.mark.slow

LOOP = """
import torch, mimex
from mimex.bonus import BONUSES, bonus_class

for name in BONUSES:
    bonus, again = bonus_class(name)(), bonus_class(name)()
    tracker = mimex.WindowTracker(8, length=bonus.length, feature_dim=3, action_dim=2)
    scale = mimex.BonusScale()
    for step in range(4):
        starts, actions = torch.full((8,), step == 0), torch.randn(8, 2)
        window = tracker.push(torch.randn(8, 3), starts, actions)
        rewards = scale.combine(torch.zeros(8), bonus.learn(window)[0])
    torch.save(bonus.state_dict(), "state.pt")
    again.load_state_dict(torch.load("state.pt", weights_only=True))
    assert torch.equal(again.reward(window), bonus.reward(window)), name
print(len(BONUSES), mimex.__file__)
"""


class Wheel(NamedTuple):
    """The wheel, installed into a virtual environment without any other package."""

    file: Path
    commands: Path
    site: Path

    @property
    def metadata(self) -> Distribution:
        (found,) = distributions(name="mimex", path=[str(self.site)])
        return found

    def run(self, command: str, *arguments: str, needs: tuple[str, ...], cwd: Path) -> str:
        """The output of a command that has the packages of some requirements, and no other."""
        packages = cwd / "packages"
        packages.mkdir()
        self.lend(needs, packages)
        ran = subprocess.run(
            [self.commands / command, *arguments],
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def lend(self, needs: tuple[str, ...], folder: Path) -> None:
        """Links what pip would install for some requirements, from the environment of the tests."""
        todo, done = list(map(Requirement, needs)), set()
        while todo:
            needed = todo.pop()
            if str(needed) in done:
                continue
            done.add(str(needed))
            found = self.metadata if needed.name == "mimex" else distribution(needed.name)
            for text in found.requires or ():
                more = Requirement(text)
                extras = ({"extra": extra} for extra in ("", *needed.extras))
                if more.marker is None or any(map(more.marker.evaluate, extras)):
                    todo.append(more)
            if needed.name != "mimex":
                for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                    if not (folder / name).is_symlink():  # of two requirements, or a namespace
                        (folder / name).symlink_to(found.locate_file(name))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-build-isolation"] if find_spec("hatchling") else []  # else pip fetches it
    build = ["wheel", "--no-deps", *offline, "--wheel-dir", folder, ROOT]
    subprocess.run([*pip, *build], check=True)
    (built,) = folder.glob("mimex-*.whl")
    venv.create(folder / "clean", with_pip=False)
    commands = folder / "clean" / "bin"
    install = ["--python", commands / "python", "install", "--no-deps", "--no-index", built]
    subprocess.run([*pip, *install], check=True)
    (site,) = (folder / "clean" / "lib").glob("python*/site-packages")
    return Wheel(built, commands, site)


def test_it_has_all_files(wheel):
    packed = set(zipfile.ZipFile(wheel.file).namelist())
    kinds = (".py", ".toml", ".js", ".css", ".xml", ".json", ".safetensors")
    kept = [path for path in (ROOT / "src").rglob("*") if path.suffix in kinds]
    assert {str(path.relative_to(ROOT / "src")) for path in kept} <= packed


def test_it_requires_torch_and_numpy_alone(wheel):
    requirements = map(Requirement, wheel.metadata.requires)
    assert {each.name for each in requirements if each.marker is None} == {"torch", "numpy"}


def test_every_bonus_works_and_is_saved_without_any_extra(wheel, tmp_path):
    count, file = wheel.run("python", "-c", LOOP, needs=("mimex",), cwd=tmp_path).split()
    assert int(count) >= 9
    assert file.startswith(str(wheel.site))
    lent = {path.name for path in (tmp_path / "packages").iterdir()}
    assert "torch" in lent
    assert not {"gymnasium", "safetensors", "scipy", "rich", "tyro"} & lent


@pytest.mark.parametrize(
    ("number", "needs"), [(0, ("mimex", "gymnasium")), (1, ("mimex[sb3]",))], ids=["loop", "sb3"]
)
def test_the_readme_runs(number, needs, wheel, tmp_path):
    wheel.run("python", "-c", BLOCKS[number], needs=needs, cwd=tmp_path)


def test_the_tasks_are_listed_without_mujoco(wheel, tmp_path):
    listed = wheel.run("mimex", "envs", needs=("mimex[train]",), cwd=tmp_path)
    assert "FrankaPick" in listed
    assert pip_install("envs") in listed


def test_the_demo_leaves_its_runs_and_curves_and_prints_the_outcome(wheel, tmp_path):
    printed = wheel.run("mimex", "demo", "--quick", needs=("mimex[envs]",), cwd=tmp_path)
    runs = {f"{task}-{bonus}" for task in ("car", "robot") for bonus in ("none", "mimex")}
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {*runs, "curves.png"}
    assert (tmp_path / "demo" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "FrankaReachUp, PPO with MIMEx: success in " in printed
    assert "of 16 episodes" in printed
