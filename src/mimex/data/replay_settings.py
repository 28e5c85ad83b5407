"""Settings of the replay buffer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the replay buffer."""

    capacity: int = 1_000_000
    """Observations in the buffer, over all environments (as published)."""
    memory_mapped: bool = False
    """Keep observations in a file of the run folder instead of memory: slower on a cold cache. Disk
    space is reserved at the start and freed at the end."""
    run: int = 1
    """Consecutive transitions per draw, with any bonus and without (published: 1). Overlapping
    windows are encoded once: from pixels, 4 makes a bonus on windows of 5 four times cheaper, but
    batches are less diverse. Use one value for all methods of a comparison."""
    save: bool = True
    """Save the buffer with checkpoints; otherwise a resumed run starts with an empty one."""

    def __post_init__(self) -> None:
        for name, least in (("capacity", 2), ("run", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"replay.{name} is {value}, but must be at least {least}.")
