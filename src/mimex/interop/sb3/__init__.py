"""The bonus for Stable-Baselines3: on-policy (PPO, A2C) and off-policy (SAC, TD3, DQN).

A rollout callback would be too late: Stable-Baselines3 calls it after the returns are computed.
"""

from mimex.extras import optional_import

with optional_import("mimex.interop.sb3", "sb3"):
    from mimex.interop.sb3.model import BonusLog, load, save, with_bonus
    from mimex.interop.sb3.replay import BonusDictReplayBuffer, BonusReplayBuffer, ReplayBonus
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
