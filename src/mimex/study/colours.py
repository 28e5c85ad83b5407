"""How methods are told apart, in every figure and on the page: by colour and by dashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product

GREY = "#7b858f"
"""For what everything else is compared with: readable on white and on black."""

OKABE_ITO = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that the colour-blind can tell apart (Okabe and Ito, 2008), without black and yellow,
which a dark and a light page would swallow."""

DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
"""On, off, on, off, ... in points; the colours are used with each in turn."""

USUAL = {"none": GREY, "mimex": OKABE_ITO[0], "rnd": OKABE_ITO[1], "icm": OKABE_ITO[2]}
"""The colours of methods that are in most studies, so that they look the same in all."""


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    dashes: tuple[int, ...]


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A style for each method, all different as long as there are enough."""
    chosen = {label: Style(USUAL[label], ()) for label in labels if label in USUAL}
    taken = {style.colour for style in chosen.values()}
    free = (
        Style(colour, dashes)
        for dashes, colour in cycle(product(DASHES, OKABE_ITO))
        if dashes or colour not in taken
    )
    return {label: chosen[label] if label in chosen else next(free) for label in labels}
