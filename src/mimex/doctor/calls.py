"""Checks of how a bonus is called: does it learn, from what it scored, after scoring, and once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mimex.doctor.check import Check, judge
from mimex.doctor.evidence import Evidence
from mimex.doctor.probe import FIELDS, NotingBonus
from mimex.doctor.windows import ALTERED, is_probe
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
    every = getattr(paying.weighted, "learn_every", None)
    finding = f"learn was called {learned} times in {asked} calls"
    if not learned and every is not None:
        finding += f" of this short run: it learns every {every} transitions"
    return judge(
        LEARNS,
        bool(learned or every is not None),
        finding,
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
    same = kinds[True] == kinds[False]
    return judge(
        SAME,
        same,
        f"windows that are learned from have {'the' if same else 'not the'} features of those that "
        "are scored",
        "give reward and learn the same windows: both normalised and encoded, or neither",
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
        return [Check(name, "skip", ALTERED) for name in (ORDER, ONCE)]
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
    most, twice = MOST * max(len(scored), 1), sum(count > 1 for count in scored.values())
    order = judge(
        ORDER,
        early <= most,
        f"{early} of {len(scored)} steps were learned from just before they were scored",
        "score first: rewards, metrics = bonus.learn(window) gives the rewards from before",
    )
    if paying.replayed:
        return [order, Check(ONCE, "pass", "sampled steps are scored anew, as they should be")]
    once = judge(
        ONCE,
        twice <= most,
        f"{twice} of {len(scored)} steps were scored more than once",
        "is the environment wrapped twice, or the bonus asked again for the same step? Once is "
        "enough, or it is paid twice",
    )
    return [order, once]
