"""Running mean and variance in double precision, and normalization by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mimex.nn import processes
from mimex.nn.state import require_same


class RunningMeanStd:
    """Running mean and variance (Chan et al., 1979).

    Args:
        shape: Shape of one item; ``()`` for scalars.
        device: PyTorch device of the statistics.
    """

    def __init__(self, shape: tuple[int, ...] = (), device: torch.device | str = "cpu") -> None:
        self.shape = shape
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)
        self.count = 0

    def update(self, items: Tensor) -> None:
        """Adds items ``(n, *shape)`` of this process."""
        if len(items):
            var, mean = torch.var_mean(items.detach().double(), dim=0, correction=0)
            self._merge(len(items), mean, var)

    def update_distributed(self, items: Tensor) -> None:
        """Adds the items of all processes, ``(n, *shape)`` each."""
        if processes.size() == 1:
            self.update(items)
            return
        own = RunningMeanStd(self.shape, self.mean.device)
        own.update(items)
        self.absorb(own)

    def absorb(self, own: RunningMeanStd) -> None:
        """Merges the statistics of each process."""
        count = torch.full_like(self.mean, own.count)
        for n, mean, var in processes.all_gather(torch.stack([count, own.mean, own.var])[None]):
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
        """Standard deviation, at least 1e-4."""
        return (self.var + 1e-8).sqrt()

    def normalize(self, items: Tensor, clip: float) -> Tensor:
        """Normalized and clipped items; unchanged before the first update."""
        if self.count == 0:
            return items
        scaled = (items - self.mean.to(items.dtype)) / self.std.to(items.dtype)
        return scaled.clamp(-clip, clip)

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {"mean": self.mean.clone(), "var": self.var.clone(), "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``; if it does not fit, nothing changes."""
        moments = {name: state[name] for name in ("mean", "var")}
        require_same({"mean": self.mean, "var": self.var}, moments, "these statistics")
        self.count = int(state["count"])
        self.mean, self.var = (
            value.to(self.mean.device, torch.float64).clone() for value in moments.values()
        )


class Normalizer:
    """Normalizes vectors by running statistics that are fixed until the next ``sync``.

    Within a rollout, equal observations are therefore equal vectors. One-hot codes are not
    normalized: their std depends on the policy's own visits, so that the policy's inputs would
    change with its behavior. On DeepSea, a policy that had solved the task lost it that way
    (seed 0, count bonus).

    Attributes:
        follow: Whether ``sync`` updates the statistics; otherwise vectors are only clipped.
        clip: Clip range, in standard deviations.

    Args:
        size: Dimensions of a vector.
        device: Device of the vectors.
        codes: ``(size,)`` bool: which dimensions are one-hot codes; by default none.
        follow: As above.
        clip: As above; by default that of RND (Burda et al., 2018).
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
        self._new = RunningMeanStd((size,), device=device)  # since the last sync of the processes
        self._mean, self._scale = torch.zeros(size, device=device), torch.ones(size, device=device)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Normalized and clipped vectors ``(..., size)``."""
        return ((vectors - self._mean) * self._scale).clamp_(-self.clip, self.clip)

    def update_stats(self, vectors: Tensor) -> None:
        """Adds vectors ``(n, size)`` to the statistics, which the next ``sync`` applies."""
        (self._seen if processes.size() == 1 else self._new).update(vectors)

    def sync(self) -> None:
        """Applies the statistics of all vectors so far, over all processes."""
        if processes.size() > 1 and self._mean.numel():
            self._seen.absorb(self._new)
            self._new = RunningMeanStd(self._new.shape, self._mean.device)
        if self.follow and self._seen.count:
            self._mean = self._seen.mean.float().masked_fill(self._codes, 0.0)
            self._scale = (1 / self._seen.std).float().masked_fill(self._codes, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """The applied statistics and the newest ones."""
        return {"seen": self._seen.state_dict(), "mean": self._mean, "scale": self._scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self._seen.load_state_dict(state["seen"])
        self._mean = state["mean"].to(self._mean.device, copy=True)
        self._scale = state["scale"].to(self._scale.device, copy=True)
