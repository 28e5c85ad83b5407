"""Data-parallel training in several processes equals one process with all the data."""

import numpy as np
import pytest
import torch
from tests.parts import actions, reader
from tests.processes import assert_equal, together

import mimex
from mimex.agents.encoders import VectorEncoder
from mimex.agents.ppo import PPO, PPOSettings
from mimex.agents.returns import Batch
from mimex.bonus.masks import LastMask
from mimex.bonus.scale import BonusScale
from mimex.contracts import Step
from mimex.nn import processes
from mimex.nn.processes import Rank
from mimex.nn.running import Normalizer, RunningMeanStd
from mimex.train.episodes import Episodes
from mimex.types import Window

SIZE = 2
B, L, D, A = 24, 5, 6, 3  # B over all processes
MINIBATCHES, ROUNDS = 2, 3


def share(rows):
    """This process's share of the rows; all rows in a single process."""
    return rows.chunk(processes.size())[processes.rank()]


# Operations.


def operations():
    own = processes.rank()
    return {
        "mean": processes.mean(torch.tensor([1.0, 10.0]) * own),
        "rows": processes.all_gather(torch.full((1, 2), own)),
        "columns": processes.all_gather(torch.full((2, 1), own), dim=1),
        "every": processes.all_gather_object({"a": [own, None, "x"]}),
        "bytes": processes.all_gather_bytes(b"xyz" * own),
        "first": processes.broadcast_bytes(b"ab" if own == 0 else b"xyz"),
    }


def test_each_operation_has_the_same_result_in_all_processes():
    expected = {
        "mean": torch.tensor([1.0, 10.0]),  # of the processes' values
        "rows": torch.tensor([[0, 0], [1, 1], [2, 2]]),
        "columns": torch.tensor([[0, 1, 2]] * 2),
        "every": [{"a": [own, None, "x"]} for own in range(3)],
        "bytes": [b"", b"xyz", b"xyzxyz"],
        "first": b"ab",
    }
    for found in together(operations, 3):
        assert_equal(found, expected)


def test_in_one_process_every_operation_returns_its_input():
    values = torch.arange(4.0)
    assert processes.mean(values) is values
    assert processes.all_gather(values) is values
    assert processes.all_gather_object(values) == [values]
    assert processes.average_gradients([values], values) is values


def test_the_rank_is_read_from_torchruns_environment(monkeypatch):
    assert processes.rank_from_environment() is None
    variables = {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}
    for name, value in {**variables, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert processes.rank_from_environment() == Rank(*variables.values())
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert processes.rank_from_environment() is None


def test_the_process_group_ends_with_its_context():
    with processes.at(Rank(1, 3)):
        assert (processes.rank(), processes.size()) == (1, 3)
    assert (processes.rank(), processes.size()) == (0, 1)


# PPO.


def learned_by_ppo(shuffle):
    torch.manual_seed(0)
    settings = PPOSettings(
        epochs=2,
        minibatches=MINIBATCHES,
        shuffle=shuffle,
        lr_schedule="adaptive",
        normalize_values=True,
        clip_per_network=True,
        two_heads=True,
    )
    ppo = PPO(VectorEncoder(reader(D)), actions(A), settings, seed=processes.rank())
    metrics = []
    for seed in range(ROUNDS):
        generator = torch.Generator().manual_seed(seed)
        stored = {"vector": torch.randn(B, D, generator=generator)}
        drawn = torch.randn(B, A, generator=generator)
        log_probs = torch.randn(B, generator=generator) - 4
        rest = [torch.randn(B, 2, generator=generator) * (seed + 1) for _ in range(3)]
        if processes.size() == 1:
            # The minibatches of one process equal those of all processes together.
            order = torch.arange(B).view(SIZE, MINIBATCHES, -1).transpose(0, 1).flatten()
        else:
            order = share(torch.arange(B))
        batch = Batch(stored, drawn, log_probs, *rest).rows(order)
        metrics.append(ppo.update(batch, seed / ROUNDS, (1.0, 0.5)))
    return ppo.state_dict(), metrics


def test_data_parallel_ppo_equals_one_process():
    expected, metrics = learned_by_ppo(shuffle=False)
    first, second = together(learned_by_ppo, SIZE, False)
    assert_equal(_without_generator(first[0]), _without_generator(second[0]))
    assert first[1] == second[1]
    torch.testing.assert_close(first[0]["network"], expected["network"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(first[0]["return_scale"], expected["return_scale"])
    for found, wanted in zip(first[1], metrics, strict=True):
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def test_weights_stay_equal_with_separate_shuffles():
    first, second = together(learned_by_ppo, SIZE, True)
    assert_equal(_without_generator(first[0]), _without_generator(second[0]))
    assert not torch.equal(first[0]["generator"], second[0]["generator"])


def _without_generator(state):
    return {name: value for name, value in state.items() if name != "generator"}


# Bonuses.

FIXED = {  # masks that are not random
    "mimex": lambda: mimex.MIMEx(D, L, mask=LastMask(), normalize=True),
    "rnd": lambda: mimex.RND(D, L, normalize=True),
    "icm": lambda: mimex.ICM(D, A, L),
    "e3b": lambda: mimex.E3B(D, A, L),
}
DRAWN = {
    "mimex": lambda: mimex.MIMEx(D, L, masks=3, normalize=True),
    "pseudocount": lambda: mimex.PseudoCount(D, L),
    "disagreement": lambda: mimex.Disagreement(D, A, L),
}


def windows(seed):
    generator = torch.Generator().manual_seed(seed)
    valid = torch.arange(L) >= torch.arange(B).unsqueeze(1) * L // B  # more of them in the first
    features = 3 * torch.randn(B, L, D, generator=generator) + 1
    return Window(features, valid, torch.randn(B, L, A, generator=generator))


def learned_by_bonus(makers, name):
    bonus = makers[name]()
    bonus.generator.manual_seed(processes.rank())
    found = []
    for seed in range(ROUNDS):
        window = windows(seed)
        own = share(torch.arange(B))
        rewards, metrics = bonus.learn(window[own])
        found.append((processes.all_gather(rewards), metrics))
    return bonus.state_dict(), found


def learned_with_fixed_masks(name):
    return learned_by_bonus(FIXED, name)


def learned_with_drawn_masks(name):
    return learned_by_bonus(DRAWN, name)


def counted():
    bonus = mimex.Count(D, L)
    bonus.learn(windows(0)[share(torch.arange(B))])
    return {key.hex(): visits for key, visits in bonus.visits.items()}


def test_visit_counts_include_all_processes():
    first, second = together(counted, SIZE)
    assert first == second == counted()


@pytest.mark.parametrize("name", FIXED)
def test_a_data_parallel_bonus_equals_one_process(name):
    expected, found = learned_with_fixed_masks(name)
    first, second = together(learned_with_fixed_masks, SIZE, name)
    assert_equal(_without_generator(first[0]), _without_generator(second[0]))
    # Gradients are averaged; Adam makes full steps even of gradients that are rounding errors.
    moments, wanted_moments = (
        {key: one["exp_avg"] for key, one in state["optimizer"].items()}
        for state in (first[0], expected)
    )
    torch.testing.assert_close(moments, wanted_moments, rtol=1e-3, atol=1e-5)
    if "statistics" in expected:
        torch.testing.assert_close(first[0]["statistics"], expected["statistics"])
    for (rewards, metrics), (wanted, reported) in zip(first[1], found, strict=True):
        torch.testing.assert_close(rewards, wanted, rtol=1e-3, atol=1e-5)
        assert metrics == pytest.approx(reported, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", DRAWN)
def test_bonuses_stay_equal_with_separate_masks(name):
    first, second = together(learned_with_drawn_masks, SIZE, name)
    assert_equal(_without_generator(first[0]), _without_generator(second[0]))
    assert_equal([metrics for _, metrics in first[1]], [metrics for _, metrics in second[1]])


# Statistics.


def statistics():
    running, normalizer = RunningMeanStd((D,)), Normalizer(D)
    scale, scores = BonusScale(schedule="linear", over_steps=1000), []
    for seed in range(ROUNDS):
        generator = torch.Generator().manual_seed(seed)
        items = torch.randn(B, D, generator=generator) * 2 + seed
        # The processes have different numbers of rows; the first has none in the first round.
        running.update_distributed(items if processes.size() == 1 else items[_uneven(seed)])
        normalizer.update_stats(share(items))
        normalizer.sync()
        streams = [torch.rand(4, B, generator=generator) for _ in range(2)]
        streams = [share(stream.T.contiguous()).T for stream in streams]
        rewards = scale.combine(*streams)
        scores.append((processes.all_gather(rewards.total.contiguous(), dim=1), rewards.share))
    return running.state_dict(), normalizer.state_dict(), scale.state_dict(), scores


def _uneven(seed):
    border = seed * 5
    return slice(0, border) if processes.rank() == 0 else slice(border, B)


def test_running_statistics_include_all_processes():
    expected = statistics()
    first, second = together(statistics, SIZE)
    assert_equal(list(first), list(second))
    for found, wanted in zip(first[:3], expected[:3], strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)
    for (total, part), (wanted, of_all) in zip(first[3], expected[3], strict=True):
        torch.testing.assert_close(total, wanted)
        assert part == pytest.approx(of_all)


def episodes():
    """Four environments; in round t environment t ends, as does the last one in every round."""
    own = share(torch.arange(4)).numpy()
    callback = Episodes(len(own), remember=3)
    for t in range(3):
        ended = (own == t) | (own == 3)
        info = {"final_info": {"success": own == 3}} if ended.any() else {}
        rewards = np.where((own == 3) & (t > 0), 1.0, 0.0)
        callback.step(Step(None, own, None, rewards, ended, np.zeros_like(ended), info))
    return callback.metrics(), callback.total


def test_episode_metrics_include_all_processes():
    """Only one of the last three episodes is of the first process: not a mean of means."""
    expected = episodes()
    assert expected[0]["train/success"] == pytest.approx(2 / 3)
    assert expected[0]["explore/first_reward"] == 8
    assert together(episodes, SIZE) == [expected] * SIZE
