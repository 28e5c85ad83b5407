"""What the bonus paid, in the logger of Stable-Baselines3."""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback

from mimex.interop.sb3.checkpoint import find_bonus
from mimex.interop.sb3.vec_env import BonusVecEnv


class BonusLog(BaseCallback):
    """Records ``bonus/mean`` (raw), ``bonus/reward``, ``bonus/share`` and ``bonus/beta``.

    ``model.learn(100_000, callback=BonusLog())``, for all algorithms and ways to pay.
    """

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        bonus = find_bonus(self.model)
        report = bonus.stream.report if isinstance(bonus, BonusVecEnv) else bonus.report
        for name, value in report.items():
            self.logger.record(name, value)
