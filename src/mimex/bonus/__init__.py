"""Intrinsic rewards: one protocol, one frame of masked prediction, and the methods by name."""

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
"""Module and class of every bonus, by the name that settings, studies and reports know it by.

A new bonus is its file and a line here: its settings are the parameters of its constructor, and
their explanations on the command line those of its docstring (``mimex.config.declared``). One of
your own, "my_bonuses:Mine", is added before anything else of mimex is imported."""


def bonus_class(name: str) -> type[Any]:
    """The class of a bonus by its name."""
    module, _, kind = BONUSES[name].partition(":")
    found: type[Any] = getattr(import_module(module, __name__), kind)
    return found
