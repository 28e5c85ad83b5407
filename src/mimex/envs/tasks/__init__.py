"""The four tasks of PixMC-Sparse, each written once for both robots."""

from mimex.envs.tasks.base import Outcome, Task
from mimex.envs.tasks.cabinet import Cabinet
from mimex.envs.tasks.move import Move
from mimex.envs.tasks.pick import Pick
from mimex.envs.tasks.reach import Reach

__all__ = ["Task", "Outcome", "Reach", "Cabinet", "Pick", "Move"]
