"""Settings of the replay buffer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the replay buffer."""

    capacity: int = 1_000_000
    """Observations that are kept, over all environments (as published)."""
    memory_mapped: bool = False
    """Keep observations in a file of the run folder instead of memory: slower on a cold cache, but
    no larger than the disk allows."""
    run: int | None = None
    """Transitions that are drawn one after the other. Windows of neighbours overlap, and what they
    share goes through the encoder once: 4 makes a bonus on windows of 5 four times cheaper, at the
    price of a batch that holds fewer places. None: 4 where a bonus sees windows of pictures, else 1
    (published)."""
    save: bool = True
    """Whether checkpoints hold the buffer; without it a continued run starts to fill a new one."""

    def __post_init__(self) -> None:
        if self.capacity < 2:
            raise ValueError(f"replay.capacity is {self.capacity}, but must be at least 2.")
        if self.run is not None and self.run < 1:
            raise ValueError(f"replay.run is {self.run}, but must be at least 1.")
