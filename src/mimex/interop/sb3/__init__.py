"""The bonus in Stable-Baselines3: a VecEnv wrapper for PPO and A2C, replay for SAC, TD3 and DQN.

A rollout callback would come too late: Stable-Baselines3 calls it after the returns are computed.
"""

from mimex.extras import optional_import

with optional_import("mimex.interop.sb3", "sb3"):
    from mimex.interop.sb3.checkpoint import BonusLog, load, save
    from mimex.interop.sb3.replay import BonusDictReplayBuffer, BonusReplayBuffer, ReplayBonus
    from mimex.interop.sb3.setup import with_bonus
    from mimex.interop.sb3.vec_env import BonusDictRolloutBuffer, BonusRolloutBuffer, BonusVecEnv

__all__ = [
    "with_bonus",
    "BonusVecEnv",
    "BonusRolloutBuffer",
    "BonusDictRolloutBuffer",
    "BonusLog",
    "ReplayBonus",
    "BonusReplayBuffer",
    "BonusDictReplayBuffer",
    "save",
    "load",
]
