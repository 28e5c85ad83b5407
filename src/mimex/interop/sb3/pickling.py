"""What Stable-Baselines3's pickles leave out: the bonus, which is saved apart."""

from __future__ import annotations

from typing import Any, TypeVar

Given = TypeVar("Given")


class LeftOutOfPickles:
    """Goes into pickles, which Stable-Baselines3 makes of models and buffers, without a bonus."""

    bonus: Any
    replacement: str
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


def given(bonus: Given | None, pays: Given | None, remedy: str) -> Given:
    """The bonus of a buffer, by this name or by that of version 0.1, ``pays``."""
    found = bonus if pays is None else pays
    if found is None:
        raise TypeError(f"the buffer was given no bonus: {remedy}.")
    return found
