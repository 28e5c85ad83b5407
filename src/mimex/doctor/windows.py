"""Checks of the windows that a bonus is asked about, by the probe's observations in them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mimex.bonus.inputs import read_actions
from mimex.data.windows import EndsAt
from mimex.doctor.check import Check, judge
from mimex.doctor.probe import EPISODE_LENGTHS, FIELDS, WINDOW_LENGTH
from mimex.types import Window

TOLERANCE = 1e-4
"""Of actions, which algorithms scale to [-1, 1] and back in single precision."""

WHOLE = "windows are whole and in order"
INSIDE = "windows stay within their episode"
ACTIONS = "actions led to the observation they stand at"
ALTERED = "observations are altered (normalised, encoded) before the bonus sees them"
ENDS = "ends of episodes are scored once, resets never"


def check_windows(windows: Sequence[Window], action_dim: int) -> tuple[list[Check], EndsAt | None]:
    """Looks through all windows that the noting bonus was asked about.

    Returns:
        The checks, and where windows end: at the "next" observation of a transition, at the
        "observation" it came from, or None where that was not found.
    """
    seen = [w for w in windows if bool(w.valid.any())]
    if not seen:
        finding = "the bonus was never asked about a window"
        remedy = "call bonus.reward or bonus.learn, or wrap the environment by wrap_vector"
        return [Check(INSIDE, "fail", finding, remedy)], None
    if not all(is_probe(w.features[w.valid], action_dim) for w in seen):
        remedy = "let the set-up leave normalisation out when it is given make_env"
        names = (INSIDE, WHOLE, ACTIONS, ENDS)
        return [Check(name, "skip", ALTERED, remedy) for name in names], None
    inside, crossing = _split(seen)
    final, first = _ends_seen(inside)
    checks = [
        judge(
            INSIDE,
            not crossing,
            f"{crossing} of {len(inside) + crossing} windows hold steps of two episodes or "
            "environments",
            "start a new window at every reset: WindowTracker.push(features, starts=...), and take"
            " the final observation from info['final_obs'] where environments reset at once",
        ),
        _whole(inside),
        _actions(seen, action_dim),
        _ends(final, first),
    ]
    return checks, None if final == first else "next" if final else "observation"


def is_probe(observations: Tensor, action_dim: int) -> bool:
    """Whether these ``(M, D)`` are the probe's own observations, unaltered."""
    if observations.shape[-1] != FIELDS + action_dim:
        return False
    fields = observations[..., :FIELDS]
    return bool((fields == fields.round()).all() and (fields >= 0).all())


def _split(windows: Sequence[Window]) -> tuple[list[tuple[Tensor, Tensor]], int]:
    """Features and validity of each window of one episode, and the number of all others."""
    rows = [
        (features, valid)
        for window in windows
        for features, valid in zip(window.features, window.valid, strict=True)
        if bool(valid.any())
    ]
    inside = [row for row in rows if len(row[0][row[1]][:, :2].unique(dim=0)) == 1]
    return inside, len(rows) - len(inside)


def _whole(rows: list[tuple[Tensor, Tensor]]) -> Check:
    wrong = 0
    for features, valid in rows:
        steps = features[valid][:, 2]
        expected = min(int(steps[-1]) + 1, WINDOW_LENGTH)
        ordered = bool((steps.diff() == 1).all())
        wrong += not (ordered and len(steps) == expected and bool(valid[-1]))
    return judge(
        WHOLE,
        not wrong,
        f"{wrong} of {len(rows)} windows lack steps of their episode or have them out of order",
        "windows go oldest first, end at the newest step and are padded on the left only where "
        "the episode had not begun",
    )


def _actions(windows: Sequence[Window], action_dim: int) -> Check:
    if any(w.actions is None for w in windows):
        finding = "windows have no actions, which MIMEx, RND and pseudo-counts do without"
        return Check(ACTIONS, "pass", finding)
    if any(bool(w.features[:, :, FIELDS:].isnan().any()) for w in windows):
        return Check(ACTIONS, "skip", "discrete observations do not tell what led to them")
    wrong = total = 0
    for window in windows:
        given = read_actions(window, action_dim, torch.device("cpu"))
        led = window.features[:, :, FIELDS:]
        asked = window.valid & (window.features[:, :, 2] > 0)  # to a first observation none led
        wrong += int(((given - led).abs().amax(2) > TOLERANCE)[asked].sum())
        total += int(asked.sum())
    return judge(
        ACTIONS,
        not wrong,
        f"{wrong} of {total} actions are not those that led to their observation",
        "actions[:, k] is the action that LED TO features[:, k], not the one taken there",
    )


def _ends(final: bool, first: bool) -> Check:
    if final and not first:
        return Check(ENDS, "pass", "windows end at the observation that the action led to")
    if first and not final:
        return Check(ENDS, "pass", "windows end at the observation acted on (as in the paper)")
    if first:
        return Check(
            ENDS,
            "fail",
            "windows end at final observations and at first ones: resets are paid for",
            "a step that only resets (NEXT_STEP) is no transition: do not score it",
        )
    return Check(
        ENDS,
        "fail",
        "no window ends at an episode's final observation: what the last action led to is lost",
        "use info['final_obs'] (Gymnasium) or info['terminal_observation'] (Stable-Baselines3)",
    )


def _ends_seen(rows: list[tuple[Tensor, Tensor]]) -> tuple[bool, bool]:
    """Whether windows end at final observations of the probe, and whether at first ones."""
    if not rows:
        return False, False
    newest = torch.stack([features[valid][-1, :FIELDS] for features, valid in rows]).long()
    episode, step = newest[:, 1], newest[:, 2]
    lengths = torch.tensor(EPISODE_LENGTHS)[episode % len(EPISODE_LENGTHS)]
    return bool((step == lengths).any()), bool((step == 0).any())
