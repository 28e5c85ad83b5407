"""Settings of the replay buffer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the replay buffer."""

    capacity: int = 1_000_000
    """Observations that are kept, over all environments (as published)."""
    memory_mapped: bool = False
    """Keep observations in a file of the run folder instead of memory: slower on a cold cache. Its
    space on the disk is reserved when the run starts, and given back when it ends."""
    run: int = 1
    """Transitions that are drawn one after the other, with any bonus and without (published: 1).
    Windows of neighbours overlap, and what they share goes through the encoder once: from pixels 4
    makes a bonus on windows of 5 four times cheaper, at the price of a batch that holds fewer
    places. Give all methods of a comparison the same."""
    save: bool = True
    """Whether checkpoints hold the buffer; without it a continued run starts to fill a new one."""

    def __post_init__(self) -> None:
        for name, least in (("capacity", 2), ("run", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"replay.{name} is {value}, but must be at least {least}.")
