"""Common behavior of all masked-prediction bonuses."""

import copy
import math
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from tests.states import assert_refused_or_loaded
from torch.utils._python_dispatch import TorchDispatchMode

import mimex
from mimex.bonus.base import EpisodicReward
from mimex.bonus.masks import FeatureMask, TimeMask
from mimex.bonus.prediction import CHUNK_WINDOWS
from mimex.bonus.size import AutoencoderSize
from mimex.nn.parallel import use_workers
from mimex.types import Window

D, A, L, B = 6, 3, 5, 40

MAKERS = {
    "mimex": lambda **kw: mimex.MIMEx(D, L, **kw),
    "mimex-k3": lambda **kw: mimex.MIMEx(D, L, masks=3, **kw),
    "mimex-feature": lambda **kw: mimex.MIMEx(D, L, mask=FeatureMask(0.8), **kw),
    "mimex-tube": lambda **kw: mimex.MIMEx(D, L, mask_type="tube", **kw),
    "mimex-actions": lambda **kw: mimex.MIMEx(D, L, action_dim=A, **kw),
    "mimex-normalized": lambda **kw: mimex.MIMEx(D, L, normalize=True, **kw),
    "rnd": lambda **kw: mimex.RND(D, L, **kw),
    "icm": lambda **kw: mimex.ICM(D, A, L, **kw),
    "pseudocount": lambda **kw: mimex.PseudoCount(D, L, masks=2, **kw),
    "disagreement": lambda **kw: mimex.Disagreement(D, A, L, **kw),
    "e3b": lambda **kw: mimex.E3B(D, A, L, **kw),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def windows(seed=0, batch=B, padded=False):
    g = torch.Generator().manual_seed(seed)
    valid = torch.ones(batch, L, dtype=torch.bool)
    if padded:
        valid = torch.arange(L) >= torch.arange(batch).unsqueeze(1) % L
    features = torch.randn(batch, L, D, generator=g) * valid.unsqueeze(2)
    return Window(features, valid, torch.randn(batch, L, A, generator=g))


def flat(state, prefix=""):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def same_state(one, other):
    one, other = dict(flat(one)), dict(flat(other))
    return one.keys() == other.keys() and all(
        torch.equal(v, other[k]) if isinstance(v, torch.Tensor) else v == other[k]
        for k, v in one.items()
    )


def test_reward_has_no_side_effects(make):
    bonus = make()
    before, world = bonus.state_dict(), torch.get_rng_state()
    first = bonus.reward(windows())
    assert torch.equal(first, bonus.reward(windows()))
    assert same_state(before, bonus.state_dict())
    assert torch.equal(world, torch.get_rng_state())
    assert not first.requires_grad
    assert first.shape == (B,)
    assert (first >= 0).all()


def test_learn_returns_the_rewards_from_before_the_step(make):
    bonus = make()
    for seed in range(3):
        window = windows(seed, padded=True)
        expected = bonus.reward(window)
        rewards, metrics = bonus.learn(window)
        assert torch.allclose(rewards, expected, atol=1e-6)
        assert metrics["bonus/mean"] == pytest.approx(float(rewards.mean()), abs=1e-6)
        assert bonus.steps == seed + 1


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "e3b"])  # of an episode
def test_training_lowers_the_reward_of_seen_windows_more_than_of_unseen_ones(name):
    bonus = MAKERS[name](lr=3e-3)
    seen = windows(1, batch=16)
    start = float(bonus.reward(seen).mean())
    for _ in range(60):
        bonus.learn(seen)
    shifted = Window(seen.features + 3.0, seen.valid, seen.actions)
    assert float(bonus.reward(seen).mean()) < 0.8 * start
    assert float(bonus.reward(shifted).mean()) > 1.5 * float(bonus.reward(seen).mean())


def test_the_global_random_state_is_neither_used_nor_changed(make):
    torch.manual_seed(1)
    one = make(seed=5)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    other = make(seed=5)
    for seed in range(3):
        a, _ = one.learn(windows(seed), train_fraction=0.5)
        b, _ = other.learn(windows(seed), train_fraction=0.5)
        assert torch.equal(a, b)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(make(seed=6).reward(windows()), make(seed=5).reward(windows()))


def test_an_interrupted_loop_continues_bit_for_bit(make):
    straight, interrupted = make(), make()
    for seed in range(4):
        straight.learn(windows(seed), 0.5)
        interrupted.learn(windows(seed), 0.5)
    saved = copy.deepcopy(interrupted.state_dict())
    interrupted.learn(windows(99))  # lost
    resumed = make(seed=77)  # another seed, overwritten by the state
    resumed.load_state_dict(saved)
    for seed in range(4, 8):
        a, metrics_a = straight.learn(windows(seed, padded=True), 0.5)
        b, metrics_b = resumed.learn(windows(seed, padded=True), 0.5)
        assert torch.equal(a, b)
        assert metrics_a == metrics_b
    assert same_state(straight.state_dict(), resumed.state_dict())


def test_train_fraction_scores_all_windows_and_trains_on_some(make):
    bonus = make()
    rewards, metrics = bonus.learn(windows(), train_fraction=0.25)
    assert torch.allclose(rewards, make().reward(windows()), atol=1e-6)
    assert metrics["bonus/trained"] == B // 4
    # Training on some of identical windows equals training on all of them.
    alike = windows(batch=8)
    alike = Window(
        *(x[:1].expand(8, *x.shape[1:]) for x in (alike.features, alike.valid, alike.actions))
    )
    whole, part = make(), make()
    if not hasattr(whole.mask, "ratio"):  # no random mask: gradients must be equal
        whole.learn(alike)
        part.learn(alike, 0.5)
        for p, q in zip(whole.network.parameters(), part.network.parameters(), strict=True):
            assert torch.allclose(p, q, atol=1e-6)


def test_chunk_size_does_not_change_results(make, monkeypatch):
    whole, chunked = make(), make()
    a, metrics_a = whole.learn(windows(padded=True), 0.6)
    monkeypatch.setattr("mimex.bonus.prediction.CHUNK_WINDOWS", 7)
    b, metrics_b = chunked.learn(windows(padded=True), 0.6)
    assert torch.allclose(a, b, atol=1e-6)
    assert metrics_a == pytest.approx(metrics_b, rel=1e-5, abs=1e-5)
    for p, q in zip(whole.network.parameters(), chunked.network.parameters(), strict=True):
        if p.grad is not None:
            assert torch.allclose(p.grad, q.grad, atol=1e-6)


def test_the_number_of_threads_does_not_change_results(make, monkeypatch):
    monkeypatch.setattr("mimex.bonus.prediction.CHUNK_WINDOWS", 7)
    results = []
    before = torch.get_num_threads()
    try:
        for workers in (1, 3):
            use_workers(workers)
            bonus = make()
            rewards = [bonus.learn(windows(seed, padded=True), 0.7)[0] for seed in range(3)]
            results.append((rewards, bonus.state_dict()))
    finally:
        use_workers(1)
        torch.set_num_threads(before)
    (rewards, state), (other_rewards, other_state) = results
    assert all(torch.equal(a, b) for a, b in zip(rewards, other_rewards, strict=True))
    assert same_state(state, other_state)


def test_padding_has_no_effect(make):
    bonus = make()
    window = windows(padded=True)
    garbage = torch.where(window.valid.unsqueeze(2), window.features, torch.full((), 1e4))
    changed = Window(garbage, window.valid, window.actions)
    assert torch.allclose(bonus.reward(window), bonus.reward(changed), atol=1e-5)
    # NaN in padding is ignored, too.
    nan = Window(
        torch.where(window.valid.unsqueeze(2), window.features, torch.full((), float("nan"))),
        window.valid,
        window.actions,
    )
    assert bonus.reward(nan).isfinite().all()


def test_empty_windows_have_no_reward_and_no_gradient(make):
    bonus = make()
    nothing = Window(
        torch.zeros(4, L, D), torch.zeros(4, L, dtype=torch.bool), torch.zeros(4, L, A)
    )
    before = {k: v.clone() for k, v in bonus.network.state_dict().items()}
    rewards, _ = bonus.learn(nothing)
    assert (rewards == 0).all()
    for name, value in bonus.network.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_nan_raises_with_its_position_and_changes_nothing(make, poison):
    bonus = make()
    bonus.learn(windows())
    before = bonus.state_dict()
    features = windows().features.clone()
    features[3, -1, 1] = poison
    with pytest.raises(ValueError, match=r"features has 1 NaN.*window 3, step 4, feature 1"):
        bonus.learn(Window(features, actions=windows().actions))
    assert same_state(before, bonus.state_dict())


def test_invalid_windows_raise(make):
    bonus = make()
    actions = windows().actions
    for window, message in [
        (Window(torch.randn(4, L, D + 1), actions=actions[:4]), "feature"),
        (Window(torch.randn(4, L + 1, D)), "length 6.*length=5"),
        (Window(torch.randn(0, L, D), actions=actions[:0]), "empty"),
        (Window(torch.randn(4, L, 2, 8, 8), actions=actions[:4]), "encoder"),
    ]:
        with pytest.raises(ValueError, match=message):
            bonus.learn(window)
    with pytest.raises(ValueError, match=r"train_fraction=0"):
        bonus.learn(windows(), train_fraction=0)


def test_states_of_another_class_or_shape_raise_and_change_nothing(make):
    bonus = make()
    bonus.learn(windows())
    before = bonus.state_dict()
    wrong_kind = {**before, "kind": "Other"}
    wrong_shape = copy.deepcopy(before)
    name = next(iter(wrong_shape["network"]))
    wrong_shape["network"][name] = torch.zeros(1, 1, 1, 1)
    missing = copy.deepcopy(before)
    del missing["network"][name]
    no_optimizer = copy.deepcopy(before)
    name = next(iter(no_optimizer["optimizer"]))
    no_optimizer["optimizer"][name]["exp_avg"] = torch.zeros(1)
    for state, message in [
        (wrong_kind, "Other"),
        (wrong_shape, "has shape"),
        (missing, "missing"),
        (no_optimizer, "exp_avg"),
        ({**before, "feature_dim": D + 1}, "feature_dim=7"),
        ({k: v for k, v in before.items() if k != "generator"}, "generator"),
    ]:
        with pytest.raises(ValueError, match=message):
            bonus.load_state_dict(state)
        assert same_state(before, bonus.state_dict())


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "mimex-normalized"])
@pytest.mark.parametrize("call", ["reward", "learn"])
def test_the_first_batch_is_normalized_by_its_own_statistics(name, call):
    """By hand: mean 0, standard deviation 1 over the valid steps, clipped to 5."""
    window, factors = windows(batch=64, padded=True), torch.logspace(-3, 3, D)
    raw = window.features * factors + 10 * factors
    raw[7, -1, 0] = 1e3  # an outlier
    seen = raw[window.valid]
    expected = ((raw - seen.mean(0)) / seen.std(0, correction=0)).clamp(-5, 5)
    expected *= window.valid.unsqueeze(2)
    bonus, plain = MAKERS[name](normalize=True), MAKERS[name]()
    large = Window(raw, window.valid, window.actions)
    found, wanted = (
        bonus.reward(w) if call == "reward" else bonus.learn(w)[0]
        for bonus, w in ((bonus, large), (plain, Window(expected, window.valid, window.actions)))
    )
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    assert bonus.statistics.count == (int(window.valid.sum()) if call == "learn" else 0)


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "mimex-normalized"])
def test_loading_a_state_with_another_normalize_setting_raises(name):
    for normalize in (True, False):
        saved, other = MAKERS[name](normalize=normalize), MAKERS[name](normalize=not normalize)
        saved.learn(windows())
        other.learn(windows(1))
        before = other.state_dict()
        with pytest.raises(ValueError, match=f"normalize={not normalize}"):
            other.load_state_dict(saved.state_dict())
        assert same_state(before, other.state_dict())


def test_a_bonus_stays_on_its_device(make):
    """With another default device, tensors created without a device would be on the wrong one."""
    bonus = make(device="cpu")
    window = windows(padded=True)
    starts = torch.ones(B, dtype=torch.bool)
    use_workers(1)  # modes belong to a thread
    with torch.device("meta"), OnDevice("cpu") as seen:
        rewards, _ = bonus.learn(window, 0.5)
        assert torch.equal(bonus.reward(window), bonus.reward(window))
        if isinstance(bonus, EpisodicReward):
            bonus.follow(window, starts)
        bonus.load_state_dict(bonus.state_dict())
    assert rewards.device.type == "cpu"
    assert seen.tensors > 50


class OnDevice(TorchDispatchMode):
    """All tensors of an operation must be on one device."""

    def __init__(self, device):
        super().__init__()
        self.device, self.tensors = device, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, torch.Tensor):
                self.tensors += 1
                assert made.device.type == self.device, func
        return out


LAZY = {
    "mimex": lambda: mimex.MIMEx(length=L, mask=FeatureMask(0.8), normalize=True),
    "rnd": lambda: mimex.RND(length=L),
    "icm": lambda: mimex.ICM(None, A, L),
    "pseudocount": lambda: mimex.PseudoCount(length=L),
    "disagreement": lambda: mimex.Disagreement(None, A, L),
    "e3b": lambda: mimex.E3B(None, A, L),
}


def calls(bonus, make_window=windows):
    """The results of a bonus: reward, learn, reward again, and follow."""
    found = [bonus.reward(make_window(0)), *bonus.learn(make_window(1), 0.5)]
    found += [*bonus.learn(make_window(2)), bonus.reward(make_window(3))]
    if isinstance(bonus, EpisodicReward):
        found += [bonus.follow(make_window(4), torch.arange(B) % 2 == 0)]
    return found


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        assert same


def test_inference_mode_changes_nothing(make):
    """Neither in construction, nor for windows, nor in training."""
    expected = calls(straight := make())
    with torch.inference_mode():
        bonus = make()
        assert_same(calls(bonus), expected)
        again = make()
        again.load_state_dict(bonus.state_dict())
    assert same_state(bonus.state_dict(), straight.state_dict())
    assert not again.reward(windows()).is_inference()
    assert_same(calls(again), calls(straight))


@pytest.mark.parametrize("name", LAZY)
def test_networks_can_be_built_in_inference_mode(name):
    with torch.inference_mode():
        found = calls(LAZY[name]())
    assert_same(found, calls(LAZY[name]()))


def test_autocast_changes_nothing(make):
    expected = calls(straight := make())
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(calls(bonus := make()), expected)
    assert same_state(bonus.state_dict(), straight.state_dict())


def test_the_default_dtype_changes_nothing(make):
    expected = calls(straight := make())
    torch.set_default_dtype(torch.float64)
    try:
        found = calls(bonus := make(), windows)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {one.dtype for one in found if isinstance(one, torch.Tensor)} == {torch.float32}
    shapes = [one.shape for one in expected if isinstance(one, torch.Tensor)]
    assert [one.shape for one in found if isinstance(one, torch.Tensor)] == shapes
    for name, weights in bonus.network.state_dict().items():
        assert weights.dtype == straight.network.state_dict()[name].dtype == torch.float32


def test_concurrent_calls_are_serialized(make):
    bonus = make()
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(bonus.learn, windows(seed)) for seed in range(24)]
        jobs += [pool.submit(bonus.reward, windows(seed)) for seed in range(8)]
        jobs += [pool.submit(bonus.state_dict) for _ in range(4)]
        for job in jobs:
            job.result()
    assert bonus.steps == 24
    assert all(weights.isfinite().all() for weights in bonus.network.parameters())


def test_a_pickled_bonus_continues_as_a_copy(make):
    bonus = make()
    calls(bonus)
    before = bonus.state_dict()
    sent = pickle.loads(pickle.dumps(bonus))
    assert same_state(sent.state_dict(), before)
    found = calls(sent)
    assert same_state(bonus.state_dict(), before)  # no memory is shared
    ForkingPickler.dumps(bonus)  # how multiprocessing sends it to a new process
    assert_same(calls(bonus), found)
    fresh = pickle.loads(pickle.dumps(make()))
    assert_same(calls(fresh), calls(make()))


class Halving(mimex.RND):
    """A bonus whose encoder is one of its methods."""

    def __init__(self):
        super().__init__(length=L, encoder=self.half)
        self.factor = 0.5

    def half(self, raw):
        return raw * self.factor


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda bonus: pickle.loads(pickle.dumps(bonus))])
def test_a_copy_has_its_own_encoder(copied):
    bonus = Halving()
    rewards = bonus.learn(windows())[0]
    made = copied(bonus)
    assert made.encoder.__self__ is made
    assert_same(calls(made), calls(bonus))
    assert rewards.shape == (B,)


def learn_elsewhere(bonus, results):
    results.put([value.tolist() for value in calls(bonus) if isinstance(value, torch.Tensor)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mimex", "e3b"])
def test_a_bonus_learns_in_a_spawned_process(name):
    context = multiprocessing.get_context("spawn")
    results, bonus = context.SimpleQueue(), MAKERS[name]()
    process = context.Process(target=learn_elsewhere, args=(bonus, results))
    process.start()
    while results.empty():
        assert process.exitcode in (None, 0)  # the process has failed without a result
        process.join(0.1)
    found = results.get()
    process.join()
    assert process.exitcode == 0
    expected = [value for value in calls(bonus) if isinstance(value, torch.Tensor)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(one), other)


def test_chunks_cover_all_rows_in_order_and_are_smaller_for_wide_windows():
    bonus = mimex.RND(27, L)
    for width, size in ((27, CHUNK_WINDOWS), (39_200, 64)):
        bonus.feature_dim = width
        chunks = bonus._chunks(5000)
        assert torch.equal(torch.cat(chunks), torch.arange(5000))
        assert max(len(chunk) for chunk in chunks) == size
    assert bonus._chunks(0) == []


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("call", ["reward", "learn"])
def test_an_invalid_first_window_does_not_change_a_bonus(name, call):
    """Sizes are inferred from the first valid window."""
    bonus, fresh = LAZY[name](), LAZY[name]()
    before = bonus.state_dict()
    good, other = windows(), Window(torch.randn(B, L, D + 2), actions=torch.randn(B, L, A))
    features, actions = other.features.clone(), good.actions.clone()
    features[0, 0, 0] = actions[0, 0, 0] = torch.nan
    bad = [Window(features, actions=good.actions)]
    bad += [Window(other.features, actions=actions)] if bonus.uses_actions else []
    for window in bad:
        with pytest.raises((ValueError, TypeError)):
            getattr(bonus, call)(window)
        assert same_state(before, bonus.state_dict())
    assert torch.equal(bonus.reward(good), fresh.reward(good))


@pytest.mark.parametrize(
    "name",
    [
        *("mimex-normalized", "rnd", "icm", "lazy mimex", "lazy icm"),
        *("pseudocount", "disagreement", "e3b"),
    ],
)
def test_loading_a_corrupted_state_changes_nothing(name):
    small = {"size": AutoencoderSize(8, 1, 2, 8, 1, 2)} if "mimex" in name else {}
    makers = {
        "mimex-normalized": lambda: mimex.MIMEx(D, L, normalize=True, **small),
        "rnd": lambda: mimex.RND(D, L, hidden=(8,), output_dim=8),
        "icm": lambda: mimex.ICM(D, A, L, hidden=8, embed_dim=8),
        "lazy mimex": lambda: mimex.MIMEx(length=L, normalize=True, **small),
        "lazy icm": lambda: mimex.ICM(None, A, L, hidden=8, embed_dim=8),
        "pseudocount": lambda: mimex.PseudoCount(D, L, hidden=(8,)),
        "disagreement": lambda: mimex.Disagreement(D, A, L, models=2, hidden=(8,)),
        "e3b": lambda: mimex.E3B(D, A, L, hidden=8, embed_dim=8),
    }
    saved, bonus = makers[name](), makers[name]()
    saved.learn(windows())
    if "lazy" not in name:
        bonus.learn(windows(1))
    assert assert_refused_or_loaded(bonus, saved.state_dict()) > 30
    bonus.load_state_dict(saved.state_dict())
    assert torch.equal(bonus.reward(windows()), saved.reward(windows()))


def test_states_with_non_finite_values_are_not_loaded(make):
    bonus = make()
    bonus.learn(windows())
    before = bonus.state_dict()
    for part in ("network", "optimizer", "statistics"):
        broken = copy.deepcopy(before)
        place = broken.get(part, {})
        while isinstance(place, dict) and place:
            place = next(iter(place.values()))
        if isinstance(place, torch.Tensor):
            place.fill_(torch.nan)
            with pytest.raises(ValueError, match="not finite"):
                bonus.load_state_dict(broken)
            assert same_state(before, bonus.state_dict())


def test_complex_features_raise(make):
    with pytest.raises(TypeError, match="features has complex numbers"):
        make().reward(Window(torch.zeros(B, L, D, dtype=torch.complex64)))


def test_feature_dim_is_inferred_from_the_first_window():
    bonus = mimex.MIMEx()
    given = mimex.MIMEx(D)
    assert torch.equal(bonus.reward(windows()), given.reward(windows()))
    with pytest.raises(ValueError, match="features has shape"):
        bonus.learn(Window(torch.randn(2, L, D + 1)))
    fresh = mimex.MIMEx()
    fresh.load_state_dict(bonus.state_dict())
    assert torch.equal(fresh.reward(windows()), bonus.reward(windows()))


def test_discrete_observations_are_one_hot():
    codes = torch.randint(0, D, (B, L), generator=torch.Generator().manual_seed(0))
    one_hot = torch.nn.functional.one_hot(codes, D).float()
    for name in ("mimex", "rnd", "pseudocount"):
        discrete = {} if name == "rnd" else {"discrete_obs": True}
        assert torch.equal(
            MAKERS[name]().reward(Window(codes)), MAKERS[name](**discrete).reward(Window(one_hot))
        )
    with pytest.raises(ValueError, match="0 to feature_dim - 1 = 5"):
        MAKERS["rnd"]().reward(Window(codes + 3))
    with pytest.raises(ValueError, match="give feature_dim"):
        mimex.RND(length=L).reward(Window(codes))


def test_images_are_encoded_without_gradient():
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, D))
    images = torch.randint(0, 256, (B, L, 3, 2, 2), dtype=torch.uint8)
    bonus = mimex.MIMEx(D, L, encoder=lambda x: encoder(x.float() / 255))
    rewards, _ = bonus.learn(Window(images))
    with torch.no_grad():
        features = encoder(images.flatten(0, 1).float() / 255).view(B, L, D)
    assert torch.allclose(rewards, mimex.MIMEx(D, L).reward(Window(features)), atol=1e-6)
    assert encoder[1].weight.grad is None


def test_masks_are_averaged_by_their_number():
    """The released code divided the sum over K masks by K - 1."""
    torch.manual_seed(0)
    one = mimex.MIMEx(D, L, mask=TimeMask(0.5))
    for masks in (2, 5):
        many = mimex.MIMEx(D, L, masks=masks, mask=TimeMask(0.5))
        many.network.load_state_dict(one.network.state_dict())
        same = windows(batch=1)
        same = Window(same.features.expand(1000, L, D))
        assert float(many.reward(same).mean()) == pytest.approx(
            float(one.reward(same).mean()), rel=0.05
        )


def test_the_reward_averages_over_masks_that_mask_a_valid_step():
    bonus = mimex.MIMEx(D, L, mask=TimeMask(0.5), masks=3)
    window = windows(padded=True)
    rewards = bonus.reward(window)
    masks = bonus.mask.draw(window.valid, 3, torch.Generator().manual_seed(0))
    for row in range(B):
        one = slice(row, row + 1)
        errors = [
            float(bonus.score(window.features[one], None, window.valid[one], mask[None, one])[0])
            for mask in masks
            if mask[row].any()
        ]
        expected = sum(errors) / len(errors) if errors else 0.0
        assert float(rewards[row]) == pytest.approx(expected, abs=1e-5)


def test_more_masks_take_one_optimizer_step_and_report_their_standard_error():
    bonus = mimex.MIMEx(D, L, masks=4)
    _, metrics = bonus.learn(windows())
    assert bonus.steps == 1
    steps = {float(s["step"]) for s in bonus.optimizer.state.values()}
    assert steps == {1.0}
    hidden = bonus.mask.draw(windows().valid, 4, torch.Generator().manual_seed(0))
    untouched = mimex.MIMEx(D, L, masks=4)
    x, valid = windows().features, windows().valid
    errors = torch.stack([untouched.score(x, None, valid, mask[None])[0] for mask in hidden])
    assert metrics["bonus/standard_error"] == pytest.approx(
        float((errors.std(0) / 2).mean()), rel=1e-4
    )
    assert "bonus/standard_error" not in mimex.MIMEx(D, L).learn(windows())[1]


def test_settings_are_checked_at_construction():
    for make, message in [
        (lambda: mimex.MIMEx(D, 0), "length=0"),
        (lambda: mimex.MIMEx(D, 1, mask_type="time"), "length >= 2"),
        (lambda: mimex.MIMEx(D, 5, 1.0), "ratio=1.0"),
        (lambda: mimex.MIMEx(D, 5, masks=0), "masks=0"),
        (lambda: mimex.MIMEx(D, lr=0.0), "lr=0.0"),
        (lambda: mimex.MIMEx(0), "feature_dim=0"),
        (lambda: mimex.MIMEx(D, padding="mirror"), "padding='mirror'"),
        (lambda: mimex.ICM(D, A, 1), "length"),
        (lambda: mimex.ICM(D, 0), "action_dim=0"),
        (lambda: mimex.PseudoCount(1), "single entry"),
        (lambda: mimex.MIMEx(D, lr=math.inf), "lr=inf"),
        (lambda: mimex.MIMEx(D, lr=math.nan), "lr=nan"),
        (lambda: mimex.MIMEx(D, 5, math.nan), "ratio=nan"),
        (lambda: mimex.MIMEx(D, size=AutoencoderSize(decoder_depth=0)), "decoder_depth=0"),
        (lambda: mimex.MIMEx(D, size=AutoencoderSize(mlp_ratio=math.nan)), "mlp_ratio=nan"),
        (lambda: mimex.ICM(D, A, hidden=0), "hidden=0"),
        (lambda: mimex.ICM(D, A, embed_dim=0), "embed_dim=0"),
        (lambda: mimex.RND(D, hidden=(4, 0)), r"hidden=\(4, 0\)"),
        (lambda: mimex.RND(D, output_dim=-1), "output_dim=-1"),
        (lambda: mimex.PseudoCount(D, hidden=(0,)), r"hidden=\(0,\)"),
        (lambda: mimex.Disagreement(D, A, models=1), "models=1"),
        (lambda: mimex.E3B(D, A, ridge=0.0), "ridge=0.0"),
        (lambda: mimex.E3B(D), "give both or neither"),
        (lambda: mimex.MIMEx(D, mask_type="word"), "mask_type='word'"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    assert mimex.MIMEx(D, 5, 0.7, mask_type="time").effective_ratio == pytest.approx(0.8)
    assert mimex.MIMEx(D, 2, 0.7, mask_type="time").effective_ratio == pytest.approx(0.5)
