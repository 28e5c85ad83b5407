"""``mimex doctor``: examine a set-up by name and print what was found."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from rich.console import Console

from mimex.doctor.builtin import SETUPS, why_not
from mimex.doctor.check import Check, all_well, table
from mimex.doctor.diagnose import RUNS, Setup, diagnose


def run_doctor(target: str | None = None, console: Console | None = None) -> int:
    """Examines a set-up and prints a table of checks with remedies.

    Args:
        target: ``"module:function"`` or ``"file.py:function"``, as ``diagnose`` takes it; the
            wrappers of this package when left out.
        console: Where to print.

    Returns:
        0 if nothing failed, else 1: the exit code.
    """
    console = console or Console()
    setups = SETUPS if target is None else {target: (load_setup(target), "mimex")}
    found: list[Check] = []
    for name, (setup, package) in setups.items():
        reason = why_not(package)
        checks = diagnose(setup) if reason is None else [Check(RUNS, "skip", reason)]
        console.print(table(name, checks))
        found += checks
    wrong = any(check.status == "fail" for check in found)
    if wrong:
        console.print("something is wrong: see the remedies above")
    elif all_well(found):
        console.print("all well")
    else:
        left = sum(check.status != "pass" for check in found)
        console.print(f"nothing wrong was found, but {left} checks could not tell: see above")
    return int(wrong)


def load_setup(target: str) -> Setup:
    """The function that a target names."""
    module, _, function = target.rpartition(":")
    if not module or not function:
        raise ValueError(f"target={target!r}; expected 'module:function' or 'file.py:function'.")
    path = Path(module)
    if path.suffix == ".py":
        if not path.exists():
            raise ValueError(f"target={target!r}: there is no file {module}.")
        sys.path.insert(0, str(path.resolve().parent))
    elif "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        found = _module_of(path) if path.suffix == ".py" else import_module(module)
    except Exception as error:  # whatever a file of yours may do when it is read
        raise ValueError(
            f"target={target!r}: {module} cannot be imported ({type(error).__name__}: {error})."
        ) from error
    if not callable(getattr(found, function, None)):
        raise ValueError(f"target={target!r}: {module} has no function {function}.")
    setup: Setup = getattr(found, function)
    return setup


def _module_of(path: Path) -> ModuleType:
    """A file as a module: by its place, not by its name, which may have dashes or be another's."""
    spec = spec_from_file_location(f"doctor_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
