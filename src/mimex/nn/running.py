"""Running mean and variance, in double precision, of whatever passes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mimex.nn import processes


class RunningMeanStd:
    """Mean and variance of everything seen so far, merged batch by batch (Chan et al., 1979).

    Args:
        shape: Shape of one item; ``()`` for scalars.
        device: Where the statistics live.
    """

    def __init__(self, shape: tuple[int, ...] = (), device: torch.device | str = "cpu") -> None:
        self.shape = shape
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = 0

    def update(self, items: Tensor) -> None:
        """Takes in items ``(n, *shape)`` of this process."""
        if len(items):
            var, mean = torch.var_mean(items.detach().double(), dim=0, correction=0)
            self._merge(len(items), mean, var)

    def update_together(self, items: Tensor) -> None:
        """Takes in the items of all processes, ``(n, *shape)`` each."""
        if processes.size() == 1:
            self.update(items)
            return
        own = RunningMeanStd(self.shape, self.mean.device)
        own.update(items)
        self.absorb(own)

    def absorb(self, own: RunningMeanStd) -> None:
        """Takes in what the statistics of each process have seen."""
        count = torch.full_like(self.mean, own.count)
        for n, mean, var in processes.joined(torch.stack([count, own.mean, own.var])[None]):
            if seen := int(n.max()):
                self._merge(seen, mean, var)

    def _merge(self, count: int, mean: Tensor, var: Tensor) -> None:
        total = self.count + count
        delta = mean - self.mean
        # Before the first batch the count is 0, and the initial variance of 1 has no weight.
        spread = self.var * self.count + var * count
        self.var = (spread + delta.square() * (self.count * count / total)) / total
        self.mean = self.mean + delta * (count / total)
        self.count = total

    @property
    def std(self) -> Tensor:
        """The standard deviation, kept away from zero."""
        return (self.var + 1e-8).sqrt()

    def normalise(self, items: Tensor, clip: float) -> Tensor:
        """Items with mean 0 and deviation 1, clipped; unchanged before anything was seen."""
        if self.count == 0:
            return items
        scaled = (items - self.mean.to(items.dtype)) / self.std.to(items.dtype)
        return scaled.clamp(-clip, clip)

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here."""
        return {"mean": self.mean.clone(), "var": self.var.clone(), "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        for name in ("mean", "var"):
            if tuple(state[name].shape) != self.shape:
                raise ValueError(
                    f"the saved {name} has shape {tuple(state[name].shape)}; expected "
                    f"{self.shape}: it is the state of other statistics."
                )
            if not bool(state[name].isfinite().all()):
                raise ValueError(f"the saved {name} has numbers that are not finite.")
        mean, var = (
            state[name].to(self.mean.device, torch.float64).clone() for name in ("mean", "var")
        )
        self.count = int(state["count"])
        self.mean, self.var = mean, var
