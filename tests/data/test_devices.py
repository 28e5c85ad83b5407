"""Tensors stay on the given device, or on that of the input."""

import torch
from torch.overrides import TorchFunctionMode

from mimex.agents.returns import gae
from mimex.data.replay import ReplayBuffer
from mimex.data.rollout import Rollout
from mimex.data.tracker import WindowTracker
from mimex.data.windows import RolloutWindows

META = torch.device("meta")
FACTORIES = (torch.zeros, torch.ones, torch.empty, torch.full, torch.arange, torch.tensor)


class NoneWithoutDevice(TorchFunctionMode):
    """Raises for tensors that are created without a device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in FACTORIES or "device" in (kwargs or {}), f"{func} without a device"
        return func(*args, **(kwargs or {}))


def tensors(values):
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict | list | tuple):
        for value in values.values() if isinstance(values, dict) else values:
            yield from tensors(value)


def assert_all_on(device, *parts):
    found = [tensor for part in parts for tensor in tensors(vars(part))]
    assert found
    assert {tensor.device for tensor in found} == {device}


def test_a_rollout_its_windows_and_returns_stay_on_their_device():
    rollout = Rollout(6, 2, {"vector": ((3,), torch.float32)}, 1, 4, device=META)
    final = torch.zeros(2, 3, device=META), torch.zeros(2, 4, device=META)
    rollout.put_finals({"vector": final[0]}, final[1])
    windows = RolloutWindows(3, 2, stride=2)
    for _ in range(2):
        index = windows.build(rollout.features[:-1], rollout.ended, actions=rollout.actions)
    advantages, returns = gae(
        rollout.rewards,
        rollout.rewards,
        rollout.rewards,
        terminated=rollout.terminated,
        ended=rollout.ended,
        discount=0.9,
        gae_lambda=0.9,
    )
    assert_all_on(META, rollout, index, index[:], windows)
    assert {t.device for t in (advantages, returns, rollout.final_features())} == {META}
    assert {t.device for t in tensors(rollout.newest(9, {}))} == {META}


def test_windows_with_final_observations_are_on_the_device_of_the_features():
    ended = torch.tensor([[False, True], [True, False], [False, False]])
    features, last, finals = torch.randn(3, 2, 4), torch.randn(2, 4), torch.randn(2, 4)
    windows = RolloutWindows(3, 2, ends_at="next")
    with NoneWithoutDevice():
        index = windows.build(features, ended, last=last, finals=finals, actions=features)
        assert index[:].features.shape == (6, 3, 4)


def test_a_tracker_stays_on_its_device():
    tracker = WindowTracker(2, 3, 4, action_dim=1, device=META, stride=2)
    starts = torch.ones(2, dtype=torch.bool)
    window = tracker.push(torch.zeros(2, 4), starts, torch.zeros(2, 1))
    assert_all_on(META, window, tracker.peek(torch.zeros(2, 4), torch.zeros(2, 1)))
    assert {tensor.device for tensor in tensors(tracker.state_dict())} == {META}


def test_samples_of_a_replay_buffer_are_on_its_device():
    replay = ReplayBuffer(40, (1,), 1, pixels=False, stack=2, n_step=3, window=3, device=META)
    replay.start([0.0])
    for number in range(20):
        replay.add([float(number)], [0.0], 0.0, False)
    batch = replay.sample(8, torch.Generator().manual_seed(0))
    found = [*tensors(batch), *tensors(batch.windows)]
    found += [part[:] for part in (batch.observations, batch.next_observations)]
    found += [batch.windows.others[:], replay.newest()]
    assert {tensor.device for tensor in found} == {META}
