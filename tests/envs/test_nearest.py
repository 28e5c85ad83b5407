"""Suggestions in errors."""

from __future__ import annotations

import pytest

from mimex.envs.nearest import choose


def test_an_allowed_value_passes() -> None:
    assert choose("fruit", "apple", ("apple", "pear")) == "apple"


def test_a_typo_gets_a_suggestion_and_other_names_the_list() -> None:
    with pytest.raises(
        ValueError, match=r"fruit is 'Aple', .* apple, pear; did you mean 'apple'\?"
    ):
        choose("fruit", "Aple", ("apple", "pear"))
    with pytest.raises(ValueError, match=r"one of apple, pear$"):
        choose("fruit", 7, ("apple", "pear"))
