"""What an error for a missing package says."""

import re
import subprocess
import sys
import tomllib

import pytest
from tests.test_recipes import ROOT

from mimex.cli import main
from mimex.extras import EXTRAS, MissingPackageError, optional_import, pip_install

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def packages(extra: str) -> set[str]:
    """What an extra installs, with the extras that it includes."""
    found = set()
    for requirement in DECLARED[extra]:
        name, extras = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
        if name == "mimex":
            found = found.union(*map(packages, extras.split(",")))
        else:
            found.add(name.replace("_", "-"))
    return found


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_an_extra_installs_the_packages_that_it_is_named_for(module, extra):
    package = {"h5py": "minari"}.get(module, module).replace("_", "-")  # minari[hdf5] has h5py
    assert any(name.startswith(package) for name in packages(extra))


def test_every_extra_that_a_user_may_be_told_to_install_is_declared_and_complete():
    adapters = {"sb3", "rsl"}
    assert set(EXTRAS.values()) == set(DECLARED) - {"all", "docs", "dev"}
    for extra in set(EXTRAS.values()) - adapters:
        assert packages("train") <= packages(extra)
    for extra in adapters:
        assert "gymnasium" in packages(extra)


def test_the_command_is_given_for_an_installed_mimex_and_for_a_checkout(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with (
        pytest.raises(MissingPackageError) as missing,
        optional_import("mimex"),
        optional_import("the viewer"),
    ):
        import viser  # noqa: F401
    assert str(missing.value) == (
        "the viewer needs viser, which is not installed: pip install 'mimex[view]' "
        "(in a checkout: pip install -e '.[view]')"
    )
    assert missing.value.name == "viser"


def test_other_modules_are_not_explained():
    missing = pytest.raises(ModuleNotFoundError, match=r"^No module named 'nowhere'$")
    with missing, optional_import("mimex"):
        import nowhere  # noqa: F401


@pytest.mark.parametrize("package", ["tyro", "gymnasium", "scipy.special", "mujoco"])
def test_a_command_names_the_extra_in_one_line(package, monkeypatch, capsys):
    def fails(arguments):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("mimex.commands.report.run", fails)
    assert main(["report", "x"]) == 1
    package = package.partition(".")[0]
    install = pip_install("envs" if package == "mujoco" else "train")
    assert capsys.readouterr().err == (
        f"mimex: mimex report needs {package}, which is not installed: {install}\n"
    )


def test_public_names_and_adapters_name_their_extra():
    code = """
import sys
sys.modules |= dict.fromkeys(["gymnasium", "safetensors", "stable_baselines3", "rsl_rl"])
for statement in sys.argv[1:]:
    try:
        exec(statement)
    except ModuleNotFoundError as error:
        print(error)
"""
    extras = {
        "mimex.wrap": "train",
        "mimex.check_bonus": "train",
        "mimex.load_policy": "train",
        "mimex.interop.sb3": "sb3",
        "mimex.interop.rsl_rl": "rsl",
    }
    statements = ["import mimex; mimex.RND", *(f"import mimex; {name}" for name in extras)]
    statements[-2:] = ["import mimex.interop.sb3", "import mimex.interop.rsl_rl"]
    command = [sys.executable, "-c", code, *statements]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = printed.splitlines()
    assert len(lines) == len(extras)
    for line, (name, extra) in zip(lines, extras.items(), strict=True):
        assert re.fullmatch(rf"{name} needs \w+, .* {re.escape(pip_install(extra))}", line)
