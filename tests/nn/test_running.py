import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mimex.nn.running import Normalizer, RunningMeanStd


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=6), min_size=1, max_size=5))
def test_statistics_do_not_depend_on_how_data_is_split_into_batches(batches):
    running = RunningMeanStd()
    for batch in batches:
        running.update(torch.tensor(batch, dtype=torch.float64))
    whole = torch.tensor([x for batch in batches for x in batch], dtype=torch.float64)
    if len(whole):
        assert float(running.mean) == pytest.approx(float(whole.mean()), abs=1e-6)
        assert float(running.var) == pytest.approx(float(whole.var(correction=0)), abs=1e-4)
    assert running.count == len(whole)


def test_normalize_clips_and_is_the_identity_before_the_first_update():
    running = RunningMeanStd((2,))
    x = torch.tensor([[3.0, -4.0]])
    assert torch.equal(running.normalize(x, 5.0), x)
    running.update(torch.tensor([[0.0, 0.0], [2.0, 2.0]]))  # mean 1, std 1
    got = running.normalize(torch.tensor([[2.0, 100.0]]), 5.0)
    assert got.tolist()[0] == pytest.approx([1.0, 5.0], abs=1e-5)


def test_a_state_is_restored_and_a_mismatched_one_raises():
    running = RunningMeanStd((3,))
    running.update(torch.randn(10, 3))
    twin = RunningMeanStd((3,))
    twin.load_state_dict(running.state_dict())
    twin.update(torch.ones(2, 3))
    running.update(torch.ones(2, 3))
    assert torch.equal(twin.mean, running.mean)
    assert torch.equal(twin.var, running.var)
    with pytest.raises(ValueError, match="expected"):
        RunningMeanStd((4,)).load_state_dict(running.state_dict())


def test_statistics_take_effect_only_after_sync():
    normalizer = Normalizer(1)
    data = torch.tensor([[1.0], [3.0]])
    normalizer.update_stats(data)
    assert torch.equal(normalizer(data), data)
    normalizer.sync()
    torch.testing.assert_close(normalizer(data), torch.tensor([[-1.0], [1.0]]))


def test_outliers_are_clipped():
    normalizer = Normalizer(1)
    normalizer.update_stats(torch.tensor([[-1.0], [1.0]]))
    normalizer.sync()
    assert normalizer(torch.tensor([[100.0]])).item() == 5.0


def test_a_saved_normalizer_continues_exactly():
    one, other = Normalizer(3), Normalizer(3)
    one.update_stats(torch.randn(50, 3))
    one.sync()
    one.update_stats(torch.randn(50, 3))  # seen, not settled
    other.load_state_dict(one.state_dict())
    for normalizer in (one, other):
        normalizer.sync()
    data = torch.randn(4, 3)
    assert torch.equal(one(data), other(data))
