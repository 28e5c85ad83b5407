"""What a bonus sees of a vector observation: named groups of features, or index ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Groups = Mapping[str, tuple[int, int]]
"""First index of each named group of features, and the one past its last."""


def view_indices(names: Sequence[str], groups: Groups, feature_dim: int) -> Tensor | None:
    """Indices of the features that a bonus sees; None for all of them.

    Args:
        names: Group names, single indices ("5") or index ranges ("24:27"). Empty for everything.
        groups: Named groups of the observation.
        feature_dim: Number of features of the observation.
    """
    if not names:
        return None
    chosen: list[int] = []
    for name in names:
        span = re.fullmatch(r"(\d+)(?::(\d+))?", name)
        if name in groups:
            start, stop = groups[name]
        elif span is not None:
            start, stop = int(span[1]), int(span[2] or int(span[1]) + 1)
        else:
            known = ", ".join(groups) or "none"
            raise ValueError(
                f"--bonus-view is {name!r}, but the groups of this observation are: {known}. Use "
                f"one of them, or indices of its {feature_dim} features such as 0:3."
            )
        if not 0 <= start < stop <= feature_dim:
            raise ValueError(
                f"--bonus-view is {name!r}, but the observation has features 0 to "
                f"{feature_dim - 1}: use a range within 0:{feature_dim}."
            )
        chosen += range(start, stop)
    return torch.tensor(sorted(set(chosen)))
