"""What both buffers with a bonus share: how they get it, and that pickles leave it out."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from gymnasium import spaces


class LeftOutOfPickles:
    """Goes into pickles, which Stable-Baselines3 makes of models and buffers, without a bonus."""

    bonus: Any
    one_line: ClassVar[str]
    """What a user writes to give a bonus to a model."""
    replacement: ClassVar[str]
    """What a user writes to go on with a new one."""

    def require(self) -> None:
        """Refuses to go on without a bonus, and says where it went."""
        if self.bonus is None:
            raise RuntimeError(
                "this model or replay buffer came out of a file of Stable-Baselines3, which holds "
                "no bonus: save and load it with mimex.interop.sb3.save and load, or go on with a "
                f"bonus that has learned nothing: {self.replacement}."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"bonus": None}


class BonusBuffer:
    """A buffer of Stable-Baselines3 with a bonus; for Dict observations it makes ``for_dicts``.

    Args:
        args: As of Stable-Baselines3's.
        bonus: What ``env.at_once()`` gave, or a ``ReplayBonus``.
        pays: The name of ``bonus`` in version 0.1.
        kwargs: As of Stable-Baselines3's.
    """

    for_dicts: ClassVar[type[BonusBuffer]]
    takes: ClassVar[type[LeftOutOfPickles]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
        chosen: Any = cls.for_dicts if isinstance(space, spaces.Dict) else cls
        made: Self = super().__new__(chosen)
        return made

    def __init__(self, *args: Any, bonus: Any = None, pays: Any = None, **kwargs: Any) -> None:
        bonus = bonus if pays is None else pays
        if not isinstance(bonus, self.takes):
            raise TypeError(
                f"the {type(self).__name__} was given bonus={bonus!r}; expected a "
                f"{self.takes.__name__}. All in one: {self.takes.one_line}."
            )
        self.bonus: Any = bonus
        super().__init__(*args, **kwargs)
