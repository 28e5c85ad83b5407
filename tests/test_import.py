"""What `import mimex` promises: it is light, and its public names are all there."""

import subprocess
import sys

import pytest

import mimex

HEAVY = ("gymnasium", "mujoco", "matplotlib", "scipy", "rich", "tyro", "OpenGL")


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_import_loads_nothing_heavy_and_the_bonus_only_torch_and_numpy():
    assert not loaded_after("import mimex") & {*HEAVY, "torch"}
    modules = loaded_after(
        "import mimex; mimex.MIMEx, mimex.ICM, mimex.WindowTracker, mimex.BonusScale"
    )
    assert {"torch", "numpy"} <= modules
    assert not modules & set(HEAVY)


def test_tasks_are_known_whichever_is_imported_first():
    for code in ("import gymnasium, mimex", "import mimex.envs, gymnasium"):
        check = f"{code}\nassert 'mimex/FrankaPick-v0' in gymnasium.registry"
        subprocess.run([sys.executable, "-c", check], check=True)


def test_every_public_name_is_there():
    assert all(hasattr(mimex, name) for name in mimex.__all__)
    assert set(mimex.__all__) <= set(dir(mimex))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mimex.nothing  # noqa: B018
