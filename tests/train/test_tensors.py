"""Training where the environments are: with MuJoCo Warp, from the engine to the learner."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from tests.devices import Crossings

from mimex.agents.on_policy import LoopSettings
from mimex.commands.build import make_training
from mimex.config import preset
from mimex.contracts import supports_tensors
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.small import DeepSea
from mimex.train.restarts import RestartSettings

ENVS = 5

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.slow),  # compiles for minutes the first time
    pytest.param("cuda", marks=pytest.mark.gpu),
]


def training(device, *, tensors, share=0.25):
    """A run whose environments end one after the other, with a share of restarts."""
    pytest.importorskip("mujoco_warp", reason="needs pip install 'mimex[warp]'")
    config = preset("cpu", "oracle", "FrankaReach")
    run = make_training(
        replace(
            config,
            envs=ENVS,
            bonus="rnd",
            device=device,
            ppo=replace(config.ppo, minibatches=2),
            loop=LoopSettings(rollout_steps=16, stagger=True),
            restarts=RestartSettings(share=share),
            world=replace(config.world, engine="warp", episode_steps=40),
        )
    )
    assert run.agent.tensors
    run.agent.tensors = tensors
    return run


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_are_those_of_the_way_over_numpy(device):
    rows, states = [], []
    for tensors in (True, False):
        run = training(device, tensors=tensors)
        rows.append(list(run.train(16 * ENVS * 8)))
        assert isinstance(run.observation, torch.Tensor) == tensors
        states.append(run.agent.algorithm.state_dict()["network"])
    for ours, theirs in zip(*rows, strict=True):
        for name in ours.keys() | theirs.keys():
            assert name.startswith("time/") or ours[name] == theirs[name], name
    assert rows[0][-1]["train/episodes"] > ENVS
    for ours, theirs in zip(*(state.values() for state in states), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_reads_which_episodes_ended_and_nothing_else(device, monkeypatch):
    monkeypatch.setattr(torch, "from_numpy", torch.as_tensor)  # which a mode does not see

    def crossings(tensors):
        run = training(device, tensors=tensors, share=0)  # restarts save states in NumPy
        run._begin(0)
        while run.agent.warming_up:
            run.advance(10**9)
        run.advance(10**9)  # from the first observation, which `reset` gives to NumPy
        found = {True: [], False: []}
        for _ in range(60):
            with Crossings(ENVS) as seen:
                metrics = run.advance(10**9)
            if (
                metrics is None and not run.agent.can_checkpoint
            ):  # not where the rollout is learned from
                ended = bool(run.agent.rollout.ended[run.agent._filled - 1].any())
                found[ended].append(seen.shapes)
        return found

    found = crossings(tensors=True)
    assert len(found[True]) > 3
    assert set().union(*found[False]) == set()
    assert set().union(*found[True]) == {(ENVS,)}  # which of them ended
    over_numpy = crossings(tensors=False)[False]
    assert all({(ENVS, 27), (ENVS, 9)} <= set(shapes) for shapes in over_numpy)


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_continues_exactly_from_tensors(device):
    straight, first, second = (training(device, tensors=True) for _ in range(3))
    rows = list(straight.train(16 * ENVS * 6))
    again = list(first.train(16 * ENVS * 3))
    assert second.load_state_dict(first.state_dict())
    again += list(second.train(16 * ENVS * 6))
    for ours, theirs in zip(rows, again, strict=True):
        for name in ours:
            assert name.startswith("time/") or ours[name] == theirs[name], name


class InTensors(VectorManipulation):
    """MuJoCo's own numbers as tensors, in the place of an engine that has them so."""

    def step_on_device(self, actions):
        return tuple(map(as_tensors, super().step_on_device(actions.numpy())))


def as_tensors(value):
    if isinstance(value, dict):
        return {name: as_tensors(part) for name, part in value.items()}
    return torch.as_tensor(value)


def test_tensors_of_any_environment_are_learned_from_as_numpys_are(monkeypatch):
    config = preset("cpu", "oracle", "FrankaReach")
    config = replace(config, envs=ENVS, bonus="rnd", ppo=replace(config.ppo, minibatches=2))
    config = replace(config, loop=LoopSettings(rollout_steps=8, ends_at="next"))
    rows = []
    for kind in (VectorManipulation, InTensors):
        env = kind("FrankaReach", ENVS, episode_steps=5, threads=1)
        env.tensors = kind is InTensors
        monkeypatch.setattr("mimex.commands.build.make_env", lambda *_, env=env: env)
        run = make_training(config)
        rows.append(list(run.train(8 * ENVS * 4)))
        assert isinstance(run.observation, torch.Tensor) == run.agent.tensors == env.tensors
    for ours, theirs in zip(*rows, strict=True):
        for name in ours.keys() | theirs.keys():
            assert name.startswith("time/") or ours[name] == theirs[name], name
    assert rows[0][-1]["train/episodes"] >= ENVS


def test_others_speak_numpy():
    env = DeepSea(2)
    assert not supports_tensors(env)
    env.tensors = True
    assert supports_tensors(env)
    assert not supports_tensors(gymnasium.wrappers.vector.NormalizeReward(env))  # wrapped
    robots = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=2, threads=1)
    robots.reset(seed=0)
    assert not supports_tensors(robots)
    assert isinstance(robots.step(torch.zeros(2, 9))[0], np.ndarray)
