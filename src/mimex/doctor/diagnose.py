"""The examination: the user's set-up is run with a probe, without a bonus, and as it is."""

from __future__ import annotations

import inspect
import random
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from mimex.doctor.calls import check_calls
from mimex.doctor.check import Check
from mimex.doctor.evidence import Evidence, gather
from mimex.doctor.novelty import NOVELTY, check_novelty
from mimex.doctor.probe import NotingBonus, probe_factory
from mimex.doctor.update import (
    FINITE,
    SHARE,
    check_finite,
    check_reaches,
    check_rewards,
    check_share,
)
from mimex.doctor.windows import check_windows

RUNS = "the set-up runs with a probe environment"
OWN_RUNS = "the set-up runs as it is"

Setup = Callable[..., Any]


def diagnose(setup: Setup, *, action_space: spaces.Space[Any] | None = None) -> list[Check]:
    """Examines how a bonus is wired into an algorithm.

    Args:
        setup: Your training script as a function ``setup(make_env=..., bonus=...)``, short: it
            makes environments by ``make_env()``, puts ``bonus`` in as you do, trains for a
            hundred steps or so, and returns what ``evidence.gather`` can read: a model of
            Stable-Baselines3, the wrapped environments, or the update's targets. With defaults
            for both arguments your own environment and bonus are examined, too.
        action_space: Of the probe environment (a Box is taken with bounds of 1). That of the
            default ``make_env`` when left out, else three discrete actions.
    """
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(setup).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    like = None
    if callable(defaults.get("make_env")):
        own = defaults["make_env"]()
        like, action_space = own.observation_space, action_space or own.action_space
        own.close()
    if isinstance(action_space, spaces.Box):
        # Algorithms may scale actions to [-1, 1] before the bonus sees them, which is no fault.
        action_space = spaces.Box(-1.0, 1.0, action_space.shape, np.float32)
    action_space = action_space or spaces.Discrete(3)
    width = spaces.flatdim(action_space)

    def run(bonus: NotingBonus) -> Evidence:
        return _seeded(lambda: setup(make_env=probe_factory(action_space, like), bonus=bonus))

    noting = NotingBonus(width)
    try:
        paying = run(noting)
        silent, again = (
            run(NotingBonus(width, lambda window: torch.zeros(len(window)))) for _ in range(2)
        )
    except Exception as error:
        remedy = (
            "let setup(make_env, bonus) work with any bonus and with make_env's observations: "
            "vectors, or of the kind that the default make_env has"
        )
        return [Check(RUNS, "fail", _describe(error, setup), remedy)]
    windows = noting.read()
    of_windows, ends_at = check_windows(windows, width)
    return [
        *of_windows,
        *check_calls(windows, noting, paying),
        check_reaches(paying, silent, again),
        *check_rewards(paying, width, ends_at),
        *_own_checks(setup, defaults),
    ]


def _own_checks(setup: Setup, defaults: Mapping[str, Any]) -> list[Check]:
    """What can be found only with the user's own environment and bonus."""
    if not {"make_env", "bonus"} <= set(defaults):
        remedy = "give make_env and bonus defaults: your own"
        finding = "the set-up has no environment and bonus of its own"
        return [Check(name, "skip", finding, remedy) for name in (FINITE, SHARE, NOVELTY)]
    try:
        own = _seeded(setup)
    except ValueError as error:  # how a bonus and its scale refuse NaN
        remedy = "see which observation or reward is meant"
        return [Check(FINITE, "fail", _describe(error, setup), remedy)]
    except Exception as error:
        remedy = "an error of the set-up with its own environment and bonus, not of the probe"
        return [Check(OWN_RUNS, "fail", _describe(error, setup), remedy)]
    return [check_finite(own), check_share(own), check_novelty(defaults["make_env"], own)]


def _describe(error: Exception, setup: Setup) -> str:
    """An error with the line of the user's own file that it came from."""
    code = getattr(setup, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    place = (
        f" ({Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line})" if own else ""
    )
    return f"{type(error).__name__}: {error}{place}"


def _seeded(run: Callable[[], Any]) -> Evidence:
    """Runs with the random numbers that algorithms share set to a known place."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the user's libraries draw from it, not we
    torch.manual_seed(0)
    return gather(run())
