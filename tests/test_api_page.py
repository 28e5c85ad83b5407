"""docs/api.md has every public name."""

import ast
import re
from pathlib import Path

import mimex

ROOT = Path(__file__).parent.parent
ADAPTERS = ROOT / "src" / "mimex" / "interop"
PAGE = (ROOT / "docs" / "api.md").read_text()
NAMED = set(re.findall(r"(?<=[.`])\w+(?=[`(\n])", PAGE))
"""Last parts of the dotted names in directives and code."""

INTERNAL = {
    "adapter", "flatten", "stream",  # modules that the adapters share
    "timeline",  # of RLlib, a function of its own so that it can be tested
}  # fmt: skip


def public_names(module):
    """What a module exports or defines; read, not imported, since its library may be missing."""
    tree = ast.parse(module.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return {name for name in defined if not name.startswith("_")}


def test_every_public_name_of_the_package_is_on_the_page():
    assert set(mimex.__all__) - NAMED == set()


def test_every_public_name_of_the_adapters_is_on_the_page():
    modules = [*ADAPTERS.glob("*.py"), ADAPTERS / "sb3" / "__init__.py"]
    names = [public_names(path) for path in modules if path.stem not in INTERNAL]
    found = set().union(*names) - INTERNAL
    assert {"with_bonus", "BonusTransform", "add_bonus", "BonusVectorWrapper"} <= found
    assert found - NAMED == set()
