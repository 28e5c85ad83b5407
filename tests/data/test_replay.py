import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from mimex.data.replay import ReplayBuffer, ReplaySettings
from mimex.data.replay_log import DamagedReplayError, free_memory, reserve

DISCOUNT = 0.5


class Record:
    """The recorded episodes of each environment, as plain lists.

    Observations are numbered; the next one's number gives the action and the reward of a step.
    """

    def __init__(self, replay):
        self.replay = replay
        self.episodes = {env: [] for env in range(replay.num_envs)}
        self.terminated = set()
        self.count = 0

    def observation(self):
        self.count += 1
        shape = self.replay.observations.shape[1:]
        kind = np.float32 if len(shape) == 1 else np.uint8
        return np.full(shape, self.count if len(shape) == 1 else self.count % 256, kind)

    def start(self, env=0):
        self.replay.start(self.observation(), env)
        self.episodes[env].append([self.count])

    def step(self, env=0, terminated=False):
        after = self.observation()
        action = np.full(self.replay.actions.shape[1], -self.count, np.float32)
        self.replay.add(after, action, self.count / 8, terminated, env)
        self.episodes[env][-1].append(self.count)
        if terminated:
            self.terminated.add(self.count)

    def kept(self, env):
        """The numbers of the observations in the ring."""
        return set(self.numbers(env)[-self.replay.slots :])

    def numbers(self, env):
        return [number for episode in self.episodes[env] for number in episode]

    def transitions(self):
        """Transitions to sample: number of the first observation to (episode, position)."""
        found = {}
        for env, episodes in self.episodes.items():
            kept = self.kept(env)
            full = len(self.numbers(env)) > self.replay.slots
            past = set(sorted(kept)[: self.replay.stack - 1]) if full else set()
            for episode in episodes:
                for position, number in enumerate(episode[:-1]):
                    if number in kept - past:
                        found[number] = (episode, position)
        return found

    def check(self, batch):
        replay, allowed = self.replay, self.transitions()
        for row in range(len(batch.actions)):
            number = int(batch.observations[:][row].flatten()[-1])
            episode, position = allowed[number]
            end = min(position + replay.n_step, len(episode) - 1)
            rewards = [DISCOUNT**k * n / 8 for k, n in enumerate(episode[position + 1 : end + 1])]
            assert float(batch.rewards[row]) == pytest.approx(sum(rewards))
            final = episode[end] in self.terminated
            discount = 0.0 if final else DISCOUNT ** (end - position)
            assert float(batch.discounts[row]) == pytest.approx(discount)
            assert float(batch.actions[row][0]) == -episode[position + 1]
            stacks = self.stack(episode, position), self.stack(episode, end)
            assert channels(batch.observations[:][row]) == stacks[0]
            assert channels(batch.next_observations[:][row]) == stacks[1]
            if batch.windows is not None:
                self.check_window(batch, row, episode, position)

    def check_window(self, batch, row, episode, position):
        windows, length = batch.windows, self.replay.window
        last = position + (self.replay.ends_at == "next")
        everything = torch.cat([batch.observations[:], windows.others[:]])
        shown = everything[windows.positions[row]]
        [env] = [env for env, episodes in self.episodes.items() if episode in episodes]
        stored = sorted(self.kept(env))  # stacks of the oldest are incomplete
        if len(self.numbers(env)) > self.replay.slots:
            stored = stored[self.replay.stack - 1 :]
        for k in range(length):
            at = last - (length - 1 - k)
            there = at >= 0 and episode[at] in stored
            assert bool(windows.valid[row, k]) == there
            if there:
                assert channels(shown[k]) == self.stack(episode, at)
                action = 0 if at == 0 else -episode[at]
                assert float(windows.actions[row, k, 0]) == action
            else:
                assert not windows.actions[row, k].any()

    def stack(self, episode, position):
        return [episode[max(position - k, 0)] for k in range(self.replay.stack - 1, -1, -1)]


def channels(observation):
    """The observation numbers in a stack of one-channel frames or one-dimensional vectors."""
    return observation.reshape(len(observation), -1)[:, 0].int().tolist()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8),
    unfinished=st.integers(0, 5),
    n_step=st.integers(1, 4),
    stack=st.integers(1, 3),
    window=st.integers(0, 5),
    ends_at=st.sampled_from(["observation", "next"]),
    run=st.integers(1, 4),
    capacity=st.integers(14, 40),
)
def test_sampled_transitions_match_the_recorded_episodes(
    lengths, unfinished, n_step, stack, window, ends_at, run, capacity
):
    replay = ReplayBuffer(
        capacity,
        (1, 2, 2),
        2,
        pixels=True,
        stack=stack,
        n_step=n_step,
        discount=DISCOUNT,
        window=window,
        ends_at=ends_at,
        run=run,
    )
    record = Record(replay)
    for length, terminated in lengths:
        record.start()
        for step in range(length):
            record.step(terminated=terminated and step == length - 1)
    record.start()
    for _ in range(unfinished):
        record.step()
    if record.transitions():
        record.check(replay.sample(40, generator()))
    else:
        with pytest.raises(ValueError, match="transition"):
            replay.sample(1, generator())


def test_transitions_of_all_environments_are_sampled_uniformly():
    replay = ReplayBuffer(60, (1,), 1, pixels=False, num_envs=2, discount=DISCOUNT, run=3, window=2)
    record = Record(replay)
    for env, lengths in enumerate([(7, 3, 12, 25), (2, 1)]):
        for length in lengths:
            record.start(env)
            for _ in range(length):
                record.step(env)
    batch = replay.sample(40_000, generator())
    seen = batch.observations[:].flatten().int()
    expected = record.transitions()
    counts = torch.bincount(seen, minlength=record.count + 1)
    assert set(counts.nonzero().flatten().tolist()) == set(expected)
    shares = counts[list(expected)] / len(seen)
    assert shares.tolist() == pytest.approx([1 / len(expected)] * len(expected), rel=0.2)


def test_runs_are_consecutive_transitions_whose_windows_share_observations():
    replay = ReplayBuffer(500, (1,), 1, pixels=False, window=5, run=4)
    record = Record(replay)
    record.start()
    for _ in range(400):
        record.step()
    batch = replay.sample(256, generator())
    runs = batch.observations[:].view(64, 4)
    steps = runs.diff(dim=1)
    assert (steps == 1).float().mean() > 0.95  # except for runs that wrap around the newest
    shared = len(batch.windows.others)
    replay.run = 1
    assert len(replay.sample(256, generator()).windows.others) > 3 * shared


def test_windows_at_any_stored_observation():
    replay = ReplayBuffer(10, (1,), 1, pixels=False, window=3)
    record = Record(replay)
    record.start()
    for _ in range(14):
        record.step()
    envs, numbers = torch.zeros(3, dtype=torch.int64), torch.tensor([14, 6, 5])
    windows = replay.windows_at(envs, numbers)
    shown = windows.others[:].flatten()[windows.positions]
    assert windows.valid.tolist() == [[True] * 3, [False, True, True], [False, False, True]]
    assert shown[0].tolist() == [13, 14, 15]
    assert shown[1, 1:].tolist() == [6, 7]


def test_the_newest_stack_repeats_the_first_frame_of_an_episode():
    replay = ReplayBuffer(20, (1, 2, 2), 1, pixels=True, stack=3)
    record = Record(replay)
    record.start()
    assert channels(replay.newest()[0]) == [1, 1, 1]
    record.step()
    assert channels(replay.newest()[0]) == [1, 1, 2]
    record.step()
    record.start()
    assert channels(replay.newest()[0]) == [4, 4, 4]


def test_adding_a_step_before_start_raises():
    replay = ReplayBuffer(20, (1,), 1, pixels=False)
    with pytest.raises(ValueError, match=r"start\(observation\) first"):
        replay.add(np.zeros(1, np.float32), np.zeros(1, np.float32), 0.0, False)


def test_a_buffer_larger_than_memory_raises_with_the_remedy(tmp_path):
    count = 2 * free_memory() // (3 * 84 * 84)
    with pytest.raises(ValueError, match=r"GB.*memory-mapped") as error:
        ReplayBuffer(count, (3, 84, 84), 1, pixels=True, stack=3)
    assert f"{count:,}" in str(error.value)


def test_a_buffer_too_small_for_its_windows_raises():
    with pytest.raises(ValueError, match=r"replay.capacity=8 .* at least 11"):
        ReplayBuffer(8, (3, 84, 84), 1, pixels=True, stack=3, n_step=3, window=5)
    with pytest.raises(ValueError, match=r"replay.capacity"):
        ReplaySettings(capacity=0)


def filled(folder, steps, seed=0, capacity=40, mapped=False):
    """A buffer and its record, determined by the seed."""
    replay = ReplayBuffer(
        capacity,
        (1, 2, 2),
        1,
        pixels=True,
        num_envs=2,
        stack=2,
        window=3,
        n_step=2,
        folder=folder,
        memory_mapped=mapped,
    )
    record = Record(replay)
    for env in range(2):
        record.start(env)
    add_steps(record, steps, seed)
    return replay, record


def add_steps(record, steps, seed=1):
    choose = np.random.default_rng(seed)
    for _ in range(steps):
        env = int(choose.integers(2))
        record.step(env, terminated=bool(ended := choose.random() < 0.2))
        if ended:
            record.start(env)


def same(one, other):
    batches = one.sample(50, generator()), other.sample(50, generator())
    parts = [
        (*b[1:4], b.observations[:], b.next_observations[:], b.windows.others[:], *b.windows[1:])
        for b in batches
    ]
    return all(torch.equal(a, b) for a, b in zip(*parts, strict=True))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "fill_disk(); filled(folder, 0, capacity=4000, mapped=True)",
            r"cannot reserve 0\.0 MB .*memory-mapped\): File too large; make room",
        ),
        (
            "replay, _ = filled(folder, 3000, capacity=4000); fill_disk(); replay.save()",
            r"cannot write .*safetensors of \d\.\d MB, .*: File too large\. .*make room",
        ),
    ],
)
def test_a_full_disk_raises_with_the_remedy(tmp_path, lines, words):
    """Simulated by a limit of 9 kB on the size of files."""
    program = f"""
import resource, sys
from pathlib import Path
from tests.data.test_replay import filled
folder = Path(sys.argv[1])
fill_disk = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
{lines}
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1  # and not by a signal
    assert re.search("OSError: .*" + words, done.stderr.splitlines()[-1])
    assert not list(tmp_path.iterdir())


def test_disk_space_of_a_mapped_file_is_reserved_and_freed(tmp_path):
    reserve(tmp_path / "file", 1_000_000)
    found = (tmp_path / "file").stat()
    assert found.st_size == 1_000_000 <= 512 * found.st_blocks
    replay, record = filled(tmp_path / "run", 30, mapped=True)
    add_steps(record, 60)
    assert not list((tmp_path / "run").iterdir())  # also if this process is killed
    unmapped, again = filled(tmp_path / "other", 30)
    add_steps(again, 60)
    assert same(replay, unmapped)


def test_unfinished_files_of_a_killed_save_are_removed(tmp_path):
    replay, record = filled(tmp_path, 30)
    replay.save()
    for loads in (True, False):
        left = [tmp_path / name for name in (".tmpAb12Cd", ".writing-0000_0_4.safetensors")]
        for path in left:
            path.write_bytes(b"unfinished")
        (tmp_path / ".tmp-of-another-program").touch()
        if loads:
            replay.load_state_dict(replay.state_dict())
        else:
            add_steps(record, 4)
            replay.save()
        assert not any(path.exists() for path in left)
    assert (tmp_path / ".tmp-of-another-program").exists()


@pytest.mark.parametrize(("mask", "mode"), [(0o027, 0o640), (0o077, 0o600), (0o002, 0o664)])
def test_files_obey_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        replay, _ = filled(tmp_path, 30)
        replay.save()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


def test_a_file_of_another_environment_index_is_ignored_when_loading(tmp_path):
    other = tmp_path / "0007_000000000000_000000000004.safetensors"
    other.touch()
    replay, _ = filled(tmp_path, 30)
    replay.save()
    loaded, _ = filled(tmp_path, 0)
    loaded.load_state_dict(replay.state_dict())
    assert same(replay, loaded)
    assert other.exists()


@pytest.mark.parametrize("steps", [5, 30, 200])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_saved_buffer_samples_the_same_after_loading(tmp_path, steps, mapped):
    replay, _ = filled(tmp_path, steps, mapped=mapped)
    replay.save()
    loaded, _ = filled(tmp_path, 0, mapped=False)
    loaded.load_state_dict(replay.state_dict())
    assert same(replay, loaded)


def test_a_save_writes_new_observations_and_removes_files_no_checkpoint_needs(tmp_path):
    replay, record = filled(tmp_path, 30)
    replay.save()
    saved = sum(replay.added)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    add_steps(record, 4)
    replay.save()
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    assert before.items() <= after.items()
    new = [load_file(path)["rewards"] for path in after if path not in before]
    assert sum(map(len, new)) == sum(replay.added) - saved
    for _ in range(30):
        add_steps(record, 20)
        replay.save()
    files = list(tmp_path.glob("*.safetensors"))
    assert not set(before) & set(files)
    assert len(files) < 20


def test_the_previous_checkpoint_can_be_loaded_and_continues_identically(tmp_path):
    replay, record = filled(tmp_path, 50)
    replay.save()
    older = replay.state_dict()
    add_steps(record, 60)
    replay.save()
    resumed, resumed_record = filled(tmp_path, 50)
    resumed.load_state_dict(older)
    add_steps(resumed_record, 60)
    resumed.save()
    assert same(replay, resumed)
    again, _ = filled(tmp_path, 0)
    again.load_state_dict(resumed.state_dict())
    assert same(replay, again)


def test_a_kill_during_a_save_keeps_the_previous_state(tmp_path):
    """The process is killed before it renames the second file of the second save."""
    program = """
import os, sys
from pathlib import Path
from tests.data.test_replay import add_steps, filled
replay, record = filled(Path(sys.argv[1]), 50)
replay.save()
add_steps(record, 60)
left, replace = [1], os.replace
def dies(*paths):
    if not left:
        os._exit(9)
    left.pop()
    replace(*paths)
os.replace = dies
replay.save()
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 9
    straight, record = filled(None, 50)
    resumed, resumed_record = filled(tmp_path, 50)
    resumed.load_state_dict(straight.state_dict())
    assert same(straight, resumed)
    add_steps(record, 60)
    add_steps(resumed_record, 60)
    resumed.save()
    loaded, _ = filled(tmp_path, 0)
    loaded.load_state_dict(straight.state_dict())
    assert same(straight, loaded)


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "a folder", "a link"])
def test_a_damaged_file_raises_with_its_name(tmp_path, damage):
    replay, _ = filled(tmp_path, 30)
    replay.save()
    path = sorted(tmp_path.glob("*.safetensors"))[0]
    content = path.read_bytes()
    if damage in ("missing", "a folder", "a link"):
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        elif damage == "a link":
            path.with_name("elsewhere").write_bytes(content)
            path.symlink_to(path.with_name("elsewhere"))
    else:
        bad = content[:-10] if damage == "cut" else content[:-10] + b"x" + content[-9:]
        path.write_bytes(bad)
    loaded, _ = filled(tmp_path, 0)
    with pytest.raises(
        DamagedReplayError, match="missing" if damage == "missing" else path.name
    ) as error:
        loaded.load_state_dict(replay.state_dict())
    assert f"remove the folder {tmp_path}" in str(error.value)


def test_a_file_of_another_environment_index_is_not_changed(tmp_path):
    replay, _ = filled(tmp_path, 30)
    replay.save()
    stray = tmp_path / "0099_000000000000_000000000007.safetensors"
    stray.write_bytes(b"of another run")
    loaded, _ = filled(tmp_path, 0)
    loaded.load_state_dict(replay.state_dict())
    loaded.save()
    assert stray.read_bytes() == b"of another run"


def test_loading_a_buffer_of_another_size_raises(tmp_path):
    replay, _ = filled(tmp_path, 30)
    replay.save()
    with pytest.raises(ValueError, match=r"replay.capacity"):
        filled(tmp_path, 0, capacity=60)[0].load_state_dict(replay.state_dict())
