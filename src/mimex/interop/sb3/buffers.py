"""Base classes of both buffers with a bonus."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from gymnasium import spaces


class NotPickled:
    """A bonus that Stable-Baselines3's pickles of models and buffers leave out.

    Attributes:
        one_line: The code that gives a bonus to a model, for messages.
        replacement: The code that gives a new bonus to a loaded model, for messages.
    """

    bonus: Any
    one_line: ClassVar[str]
    replacement: ClassVar[str]

    def require_bonus(self) -> None:
        """Raises RuntimeError if the bonus was lost in a pickle."""
        if self.bonus is None:
            raise RuntimeError(
                "this model or replay buffer was loaded from a file of Stable-Baselines3, which "
                "contains no bonus: save and load it with mimex.interop.sb3.save and load, or "
                f"continue with a new bonus: {self.replacement}."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"bonus": None}


class BonusBuffer:
    """A buffer of Stable-Baselines3 with a bonus; for Dict observations it creates ``for_dicts``.

    Args:
        args: As of Stable-Baselines3's buffer.
        bonus: A ``ReplayBonus``, or the result of ``BonusVecEnv.rollout_bonus``.
        kwargs: As of Stable-Baselines3's buffer.
    """

    for_dicts: ClassVar[type[BonusBuffer]]
    takes: ClassVar[type[NotPickled]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
        chosen: Any = cls.for_dicts if isinstance(space, spaces.Dict) else cls
        made: Self = super().__new__(chosen)
        return made

    def __init__(self, *args: Any, bonus: Any = None, **kwargs: Any) -> None:
        if not isinstance(bonus, self.takes):
            raise TypeError(
                f"the {type(self).__name__} was given bonus={bonus!r}; expected a "
                f"{self.takes.__name__}. All in one: {self.takes.one_line}."
            )
        self.bonus: Any = bonus
        super().__init__(*args, **kwargs)
