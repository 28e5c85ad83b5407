import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.states import assert_refused_or_loaded, same

from mimex import ICM, RND, BonusScale, MIMEx
from mimex.doctor.probe import NotingBonus
from mimex.interop.stream import BonusStream

BOX, TWO = spaces.Box(-np.inf, np.inf, (6,)), spaces.Discrete(3)


def rows(*steps):
    """Observations of the probe's kind: environment n, episode 0, a step."""
    return np.array([[n, 0, step, 0, 0, 0] for n, step in enumerate(steps)], np.float32)


def pays_the_step(window):
    return window.features[:, -1, 2]


@pytest.mark.parametrize("at_once", [False, True])
def test_steps_that_only_reset_are_neither_scored_nor_learned(at_once):
    bonus = NotingBonus(3, pays_the_step)
    stream = BonusStream(bonus, 2, BOX, TWO, beta=BonusScale(10.0, "raw"), learn_every=None)
    stream.at_once = at_once
    stream.start(rows(0, 0))
    paid = [
        stream.step([0, 0], rows(1, 1), [1.0, 2.0], [True, False]),
        stream.step([0, 0], rows(0, 2), [0.0, 4.0], [False, False], ignored=[True, False]),
    ]
    if at_once:
        assert [p.total.tolist() for p in paid] == [[1.0, 2.0], [0.0, 4.0]]
        settled = stream.settle()
        totals, intrinsic = settled.total.tolist(), settled.intrinsic.tolist()
    else:
        totals = [p.total.tolist() for p in paid]
        intrinsic = [p.intrinsic.tolist() for p in paid]
    assert totals == [[11.0, 12.0], [0.0, 24.0]]
    assert intrinsic == [[10.0, 10.0], [0.0, 20.0]]
    assert sum(map(len, bonus.windows)) == stream.transitions == 3
    assert stream.paid == {"extrinsic": 7.0, "intrinsic": 40.0}


def test_settling_scores_each_piece_before_it_is_learned():
    observations = np.random.default_rng(0).normal(size=(9, 4, 6)).astype(np.float32)
    stream = BonusStream(RND(6), 4, BOX, TWO, beta=1.0, learn_every=16)
    stream.at_once = True
    stream.start(observations[0])
    for row in observations[1:]:
        stream.step([0] * 4, row, np.zeros(4), [False] * 4)
    paid = stream.settle().intrinsic
    fresh = RND(6)
    plain = BonusStream(fresh, 4, BOX, TWO, beta=1.0, learn_every=16)
    plain.start(observations[0])
    expected = [plain.step([0] * 4, r, np.zeros(4), [False] * 4) for r in observations[1:]]
    torch.testing.assert_close(paid, torch.stack([e.intrinsic for e in expected]))
    assert stream.bonus.steps == fresh.steps == 2


def test_a_state_of_other_environments_is_refused_and_changes_nothing():
    def stream(num_envs):
        return BonusStream(MIMEx(), num_envs, BOX, TWO, learn_every=2)

    saved, other = stream(3), stream(2)
    saved.start(rows(0, 0, 0))
    saved.step([0, 0, 0], rows(1, 1, 1), np.zeros(3), [False] * 3)
    with pytest.raises(ValueError, match="features"):
        other.load_state_dict(saved.state_dict())
    assert other.bonus.steps == 0
    assert other.transitions == 0


def test_a_state_broken_in_any_place_changes_nothing():
    def stream():
        return BonusStream(ICM(None, 3, hidden=8, embed_dim=8), 2, BOX, TWO)

    saved, lazy, other = stream(), stream(), stream()
    for one in (saved, other):
        one.start(rows(0, 0))
        one.step([0, 1], rows(1, 1), np.zeros(2), [False] * 2)
    for one in (lazy, other):
        assert assert_refused_or_loaded(one, saved.state_dict()) > 50
        one.load_state_dict(saved.state_dict())
        assert same(one.state_dict(), saved.state_dict())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learn_every": float("nan")}, "learn_every=nan"),
        ({"learn_every": float("inf")}, "learn_every=inf"),
        ({"learn_every": 0}, "learn_every=0"),
        ({"train_fraction": float("nan")}, "train_fraction=nan"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        BonusStream(RND(6), 2, BOX, TWO, **settings)


def test_steps_of_a_wrong_shape_are_refused_by_name_and_change_nothing():
    stream = BonusStream(ICM(6, 3), 2, BOX, TWO)
    before = stream.state_dict()
    with pytest.raises(ValueError, match="which has shape"):
        stream.start(rows(0, 0), np.ones(3, bool))
    with pytest.raises(ValueError, match="features has shape"):
        stream.start(rows(0, 0, 0))
    assert same(before, stream.state_dict())
    stream.start(rows(0, 0))
    before = stream.state_dict()
    good = {
        "actions": [0, 1],
        "observations": rows(1, 1),
        "extrinsic": np.zeros(2),
        "ended": [False, False],
    }
    for name, value, words in [
        ("ended", [False], "ended has shape"),
        ("ended", [[False, True]], "ended has shape"),
        ("ended", False, "ended has shape"),
        ("extrinsic", np.zeros(3), "extrinsic has shape"),
        ("actions", [0], "actions"),
        ("actions", [0, 1, 2], "actions"),
        ("actions", [0, 7], "actions are no batch of values"),
        ("actions", ["a", "b"], "actions are no batch of values"),
        ("observations", rows(1, 1)[:, :5], "features has shape"),
        ("observations", rows(1), "features has shape"),
        ("ignored", [True], "ignored has shape"),
    ]:
        with pytest.raises(ValueError, match=words):
            stream.step(**(good | {name: value}))
        assert same(before, stream.state_dict()), name


def test_a_bonus_that_never_learns_is_for_evaluation():
    bonus = RND(6)
    stream = BonusStream(bonus, 1, BOX, TWO, learn_every=None)
    stream.start(rows(0))
    for step in range(1, 600):
        stream.step([0], rows(step), np.zeros(1), [False])
    assert bonus.steps == 0
