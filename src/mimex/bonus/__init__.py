"""Intrinsic rewards (bonuses) by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

BONUSES = {
    "none": ".base:NoBonus",
    "constant": ".base:ConstantBonus",
    "mimex": ".mimex:MIMEx",
    "rnd": ".rnd:RND",
    "icm": ".icm:ICM",
    "pseudocount": ".pseudocount:PseudoCount",
    "disagreement": ".disagreement:Disagreement",
    "e3b": ".e3b:E3B",
    "count": ".count:Count",
}
"""Module and class of each bonus, by its name on the command line and in studies.

A new bonus is its file and a line here. Its settings are the parameters of its constructor, with
the help of its docstring (``mimex.config.declared``). Add your own, "my_bonuses:Mine", before any
other module of mimex is imported."""


def bonus_class(name: str) -> type[Any]:
    """The class of a bonus by its name."""
    module, _, kind = BONUSES[name].partition(":")
    found: type[Any] = getattr(import_module(module, __name__), kind)
    return found
