"""Novelty maps: what is counted, and that a killed run writes the same files."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from tests.processes import assert_equal, together

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.contracts import Scored, Step
from mimex.nn import processes
from mimex.train.coverage import FIRST_STATES, Coverage, HandPlanes, PrincipalPlane
from mimex.train.novelty import Novelty, NoveltyMap, read_records, remove_after, write_record

HANDS = np.array([[0.51, 0.01, 0.51], [0.52, 0.02, 0.93], [0.01, -0.59, 0.01], [9.0, 0.0, 0.5]])


def test_cells_hold_visits_and_the_mean_bonus():
    novelty = NoveltyMap(HandPlanes())
    novelty.visit(HANDS, np.array([1.0, 3.0, 5.0, 100.0]))
    novelty.visit(HANDS[:1], np.array([5.0]))
    above, side = novelty.take()
    assert above["visits"].sum() == 4  # one was outside
    assert above["visits"][10, 12] == 3
    assert above["bonus"][10, 12] == 3.0  # of 1, 3 and 5
    assert above["bonus"][0, 0] == 5.0
    assert side["visits"][10, 10] == 2
    assert side["visits"][10, 18] == 1
    assert side["bonus"][10, 18] == 3.0
    assert above["bonus"][above["visits"] == 0].max() == 0


def test_a_record_begins_a_new_map_but_not_a_new_coverage():
    novelty = NoveltyMap(HandPlanes())
    novelty.visit(HANDS, np.ones(4))
    assert novelty.coverage == 2 / 576
    novelty.take()
    assert sum(int(plane["visits"].sum()) for plane in novelty.take()) == 0
    assert novelty.coverage == 2 / 576


def test_the_map_from_above_is_the_coverage_without_its_height():
    rng = np.random.default_rng(1)
    positions = rng.uniform(-0.2, 1.4, (300, 3))
    coverage, novelty = Coverage(), NoveltyMap(HandPlanes())
    coverage.visit(positions)
    novelty.visit(positions, np.zeros(300))
    above, side = (plane["visits"] > 0 for plane in novelty.take())
    assert not (coverage.visited.any(axis=2) & ~above).any()
    assert not (coverage.visited.any(axis=1) & ~side).any()


def test_nothing_is_lost_before_the_principal_axes_are_known():
    rng = np.random.default_rng(2)
    states, bonus = rng.normal(size=(FIRST_STATES + 7, 3)), rng.uniform(size=FIRST_STATES + 7)
    at_once, one_by_one = NoveltyMap(PrincipalPlane()), NoveltyMap(PrincipalPlane())
    at_once.visit(states[:FIRST_STATES], bonus[:FIRST_STATES])
    at_once.visit(states[FIRST_STATES:], bonus[FIRST_STATES:])
    for state, paid in zip(states, bonus, strict=True):
        one_by_one.visit(state[None], np.array([paid]))
    [one], [other] = at_once.take(), one_by_one.take()
    assert one["visits"].sum() == FIRST_STATES + 7
    np.testing.assert_array_equal(one["visits"], other["visits"])
    np.testing.assert_allclose(one["bonus"], other["bonus"], rtol=1e-6)


@pytest.mark.parametrize("saved_after", [100, FIRST_STATES + 50])
def test_a_saved_map_continues_exactly(tmp_path, saved_after):
    rng = np.random.default_rng(3)
    states, bonus = rng.normal(size=(FIRST_STATES + 500, 4)), rng.uniform(size=FIRST_STATES + 500)
    straight, first = NoveltyMap(PrincipalPlane()), NoveltyMap(PrincipalPlane())
    for part in (slice(0, saved_after), slice(saved_after, None)):
        straight.visit(states[part], bonus[part])
    first.visit(states[:saved_after], bonus[:saved_after])
    resumed = NoveltyMap(PrincipalPlane())
    resumed.load_state_dict(first.state_dict())
    first.visit(states[:50], bonus[:50])  # must not change what was saved
    resumed.visit(states[saved_after:], bonus[saved_after:])
    assert resumed.coverage == straight.coverage
    write_record(tmp_path / "a", 5, straight)
    write_record(tmp_path / "b", 5, resumed)
    name = "novelty/step_000000000005.safetensors"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_records_come_in_order_and_newer_ones_can_be_removed(tmp_path):
    novelty = NoveltyMap(HandPlanes())
    for step in (2000, 100, 1_000_000):
        novelty.visit(HANDS[:1], np.array([float(step)]))
        write_record(tmp_path, step, novelty)
    found = read_records(tmp_path)
    assert [record["step"] for record in found] == [100, 2000, 1_000_000]
    assert found[1]["planes"][0]["bonus"].max() == 2000.0
    assert found[0]["planes"][0]["axes"] == ("x (m)", "y (m)")
    remove_after(tmp_path, 2000)
    assert [record["step"] for record in read_records(tmp_path)] == [100, 2000]


def test_damaged_records_are_left_out(tmp_path):
    novelty = NoveltyMap(HandPlanes())
    for step in (1, 2):
        write_record(tmp_path, step, novelty)
    path = tmp_path / "novelty" / "step_000000000001.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert [record["step"] for record in read_records(tmp_path)] == [2]
    assert read_records(tmp_path / "nowhere") == []


def seen_by_a_process(after):
    """A few steps of four robots, or of this process's share of them."""
    own = np.array_split(np.arange(4), processes.size())[processes.rank()]
    env = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=len(own), threads=1)
    observation, _ = env.reset(seed=[int(seed) for seed in own])
    novelty = Novelty(env)
    novelty.begin(observation)
    for t in range(6):
        actions = np.sin(np.arange(9) + own[:, None] + t).astype(np.float32)
        made = Step(observation, actions, *env.step(actions))
        made = made._replace(truncated=own == t)
        novelty.step(made)
        observation = made.next_observation
    bonus = np.arange(24.0).reshape(6, 4)[:, own]
    scored = Scored(np.arange(6), bonus, after, None)
    metrics = novelty.metrics(SimpleNamespace(scored=lambda: scored))
    env.close()
    return metrics, novelty.map.state_dict(), novelty.coverage.state_dict()


@pytest.mark.parametrize("after", [False, True])
def test_maps_are_those_of_all_processes(after):
    expected = seen_by_a_process(after)
    assert expected[1]["visits"][0].sum() == 24 - 4 * after
    for found in together(seen_by_a_process, 2, after):
        assert_equal(list(found), list(expected))
