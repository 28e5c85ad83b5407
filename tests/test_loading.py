"""Nothing that is loaded from disk may execute anything: the source, read as a tree."""

import ast
from pathlib import Path

import pytest

import mimex

SOURCES = sorted(Path(mimex.__file__).parent.rglob("*.py"))
EXECUTE = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
THEIRS = {"interop/sb3/model.py", "bonus/prediction.py"}
"""The first reads Stable-Baselines3's own files by its own functions, and says so. The second
copies a bonus in memory on its way to another process, and reads no file."""


def dotted(node):
    """A name such as torch.load; empty of what is none."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(tree):
    """What in a file could execute what it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in EXECUTE:
            yield f"line {node.lineno}: from {node.module} import"
        used = dotted(node) if isinstance(node, ast.Attribute) else ""
        if used.partition(".")[0] in EXECUTE and used != "pickle.UnpicklingError":
            yield f"line {node.lineno}: {used}"
        if not isinstance(node, ast.Call):
            continue
        name, given = dotted(node.func), {word.arg: word.value for word in node.keywords}
        safe = isinstance(given.get("weights_only"), ast.Constant) and given["weights_only"].value
        if name == "torch.load" and safe is not True:
            yield f"line {node.lineno}: torch.load without weights_only=True"
        if name in ("np.load", "numpy.load") and "allow_pickle" in given:
            yield f"line {node.lineno}: {name} with allow_pickle"
        if name in ("eval", "exec", "torch.jit.load", "torch.hub.load", "torch.package"):
            yield f"line {node.lineno}: {name}"
        if name.endswith(".load_replay_buffer") or name == "VecNormalize.load":
            yield f"line {node.lineno}: {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_file_of_the_library_executes_what_it_loads(path):
    if path.relative_to(Path(mimex.__file__).parent).as_posix() not in THEIRS:
        assert list(faults(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "line",
    [
        *("import pickle; pickle.load(f)", "from pickle import loads", "torch.load(p)"),
        *("torch.load(p, weights_only=False)", "torch.load(p, weights_only=how)", "eval(text)"),
        *("np.load(p, allow_pickle=True)", "torch.jit.load(p)", "import yaml; yaml.load(f)"),
    ],
)
def test_the_check_finds_what_it_looks_for(line):
    assert list(faults(ast.parse(line)))
