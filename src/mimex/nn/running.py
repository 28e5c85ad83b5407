"""Running mean and variance, in double precision, and vectors that are normalised by them."""

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


class Normaliser:
    """Normalises vectors by statistics that stand still until ``sync`` takes in what was seen.

    Within a rollout one observation is therefore one vector, whenever it was met. Codes of discrete
    values stay as they are: the deviation of a code is that of how often it was met, so that a
    policy would change with its own habits. On the deep sea one that had found the treasure in
    every episode lost it so, and keeps it with codes as they are (seed 0, count bonus).

    Attributes:
        follow: Whether ``sync`` does so; otherwise numbers are only cut off.
        clip: Where numbers are cut off, in standard deviations.

    Args:
        size: Numbers a vector.
        device: Where vectors are.
        codes: ``(size,)``, which of them are codes; none when left out.
        follow: As above.
        clip: As above; by default as RND does (Burda et al., 2018).
    """

    def __init__(
        self,
        size: int,
        device: torch.device | str = "cpu",
        codes: Tensor | None = None,
        *,
        follow: bool = True,
        clip: float = 5.0,
    ) -> None:
        self._codes = torch.zeros(size, dtype=torch.bool, device=device) if codes is None else codes
        self.follow, self.clip = follow, clip
        self._seen = RunningMeanStd((size,), device=device)
        self._new = RunningMeanStd((size,), device=device)  # since the processes last met
        self._mean, self._scale = torch.zeros(size, device=device), torch.ones(size, device=device)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors ``(..., size)`` with mean 0 and deviation 1, clipped."""
        return ((vectors - self._mean) * self._scale).clamp_(-self.clip, self.clip)

    def watch(self, vectors: Tensor) -> None:
        """Takes vectors ``(n, size)`` into the statistics, to be used after ``sync``."""
        (self._seen if processes.size() == 1 else self._new).update(vectors)

    def sync(self) -> None:
        """Uses the statistics of all that was watched, in all processes, from now on."""
        if processes.size() > 1 and self._mean.numel():
            self._seen.absorb(self._new)
            self._new = RunningMeanStd(self._new.shape, self._mean.device)
        if self.follow and self._seen.count:
            self._mean = self._seen.mean.float().masked_fill(self._codes, 0.0)
            self._scale = (1 / self._seen.std).float().masked_fill(self._codes, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """The statistics, those in use and those seen."""
        return {"seen": self._seen.state_dict(), "mean": self._mean, "scale": self._scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._seen.load_state_dict(state["seen"])
        self._mean = state["mean"].to(self._mean.device, copy=True)
        self._scale = state["scale"].to(self._scale.device, copy=True)
