"""Checks of how a bonus is called: does it learn, from what it scored, after scoring, and once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mimex.doctor.check import Check
from mimex.doctor.evidence import Evidence
from mimex.doctor.probe import FIELDS, NotingBonus
from mimex.doctor.windows import is_probe
from mimex.types import Window

LEARNS = "the bonus learns"
ORDER = "windows are scored before they are learned from"
ONCE = "each step is scored once"
SAME = "what is learned from is what is scored"

MOST = 0.5
"""Share of the windows that shows a habit; single cases are chance."""

Key = tuple[int, ...]


def check_calls(windows: Sequence[Window], noting: NotingBonus, paying: Evidence) -> list[Check]:
    """Looks through the calls of ``reward`` and ``learn`` that the probe's bonus noted."""
    calls = list(zip(windows, noting.learned, strict=True))
    readable = [is_probe(w.features[w.valid], noting.action_dim or 0) for w, _ in calls]
    return [
        _learns(noting, paying),
        _same(calls, readable),
        *_order_and_once(calls, paying, all(readable) and bool(calls)),
    ]


def _learns(noting: NotingBonus, paying: Evidence) -> Check:
    learned, asked = sum(noting.learned), len(noting.learned)
    if learned:
        return Check(LEARNS, "pass", f"learn was called {learned} times in {asked} calls")
    every = getattr(paying.weighted, "learn_every", None)
    if every is not None:
        return Check(LEARNS, "pass", f"not in this short run: it learns every {every} transitions")
    return Check(
        LEARNS,
        "fail",
        f"bonus.learn was never called ({asked} calls of reward)",
        "call bonus.learn(window), which scores and learns, or wrap with learn_every=512; a bonus "
        "that does not learn is no novelty",
    )


def _same(calls: list[tuple[Window, bool]], readable: list[bool]) -> Check:
    """Whether scored and learned windows are of the same kind."""
    kinds: dict[bool, set[tuple[bool, int]]] = {True: set(), False: set()}
    for (window, learned), plain in zip(calls, readable, strict=True):
        kinds[learned].add((plain, window.features.shape[-1]))
    if not kinds[True] or not kinds[False]:
        return Check(SAME, "pass", "one call does both" if kinds[True] else "nothing is learned")
    if kinds[True] == kinds[False]:
        return Check(SAME, "pass", "both are of the same features")
    return Check(
        SAME,
        "fail",
        "windows that are learned from have other features than those that are scored: one kind is "
        "normalised or encoded, the other is not",
        "give reward and learn the same windows, normalised or not",
    )


def _keys(window: Window) -> list[Key]:
    """Environment, episode and step at which each window ends."""
    some = window.valid.any(1)
    newest = window.features[some][:, -1, :FIELDS]
    return [tuple(int(field) for field in row) for row in newest.tolist()]


def _order_and_once(
    calls: list[tuple[Window, bool]], paying: Evidence, readable: bool
) -> list[Check]:
    if not readable:
        finding = "observations are altered (normalised, encoded) before the bonus sees them"
        return [Check(name, "skip", finding) for name in (ORDER, ONCE)]
    scored: Counter[Key] = Counter()
    early = 0
    taught: set[Key] = set()  # by the call before
    only_learns = all(learned for _, learned in calls)
    for window, learned in calls:
        keys = _keys(window)
        if not learned:
            early += sum(key in taught and not scored[key] for key in keys)
        if learned == only_learns:
            scored.update(keys)
        taught = set(keys) if learned else set()
    order = Check(ORDER, "pass", f"{len(scored)} steps")
    if early > MOST * max(len(scored), 1):
        order = Check(
            ORDER,
            "fail",
            f"{early} of {len(scored)} steps were learned from just before they were scored",
            "score first: rewards, metrics = bonus.learn(window) gives the rewards from before",
        )
    if paying.replayed:
        return [order, Check(ONCE, "pass", "sampled steps are scored anew, as they should be")]
    twice = sum(count > 1 for count in scored.values())
    once = Check(ONCE, "pass", f"{len(scored)} steps")
    if twice > MOST * max(len(scored), 1):
        once = Check(
            ONCE,
            "fail",
            f"{twice} of {len(scored)} steps were scored more than once",
            "is the environment wrapped twice, or the bonus asked again for the same step? Once is "
            "enough, or it is paid twice",
        )
    return [order, once]
