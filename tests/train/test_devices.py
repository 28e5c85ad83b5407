"""Whole runs on a GPU, or on a stand-in that keeps to its rules; and from one device to another."""

from dataclasses import replace

import pytest
import torch

from mimex.bonus import BONUSES, bonus_class
from mimex.commands.build import make_training
from mimex.config import preset
from mimex.train import checkpoint

pytestmark = pytest.mark.usefixtures("cuda")

SAMPLED = [name for name in BONUSES if not hasattr(bonus_class(name), "follow")]
"""Bonuses that DrQ-v2 can have."""


def on(device):
    return torch.arange(3.0, device=device)


@pytest.mark.parametrize(
    "operation",
    [
        lambda: on("cuda") + on("cpu"),
        lambda: torch.cat([on("cpu"), on("cuda")]),
        lambda: on("cpu")[on("cuda").long()],
        lambda: on("cuda").index_select(0, on("cpu").long()),
        lambda: torch.nn.Linear(3, 1).to("cuda")(on("cpu")),
        lambda: on("cuda").add_(on("cpu")),
    ],
)
def test_tensors_of_two_devices_do_not_mix(operation):
    with pytest.raises(RuntimeError):
        operation()


def test_what_a_gpu_allows_is_allowed():
    assert (on("cuda") * torch.tensor(2.0)).device.type == "cuda"
    assert on("cuda")[torch.tensor([0, 2])].tolist() == [0.0, 2.0]
    assert on("cuda").copy_(on("cpu") + 1).tolist() == [1.0, 2.0, 3.0]
    assert on("cuda").cpu().device.type == on("cpu").device.type == "cpu"
    assert on("cuda").cpu().numpy().tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(TypeError):
        on("cuda").numpy()


def training(agent, folder, device, bonus="mimex", more=0):
    """A short run, and how many steps it has: room for so many ``more`` rows of metrics."""
    if agent == "ppo":
        config = preset("cpu", "oracle", "FrankaReach")
        loop = replace(config.loop, rollout_steps=8)
        ppo = replace(config.ppo, epochs=1, minibatches=2, hidden=(8,), shuffle=True)
        config = replace(config, loop=loop, ppo=ppo, envs=3, steps=8 * 3 * (2 + more))
    else:
        config = preset("cpu", "state", "dmc/cartpole_swingup")
        small = {"batch": 8, "hidden": 8, "trunk": 4, "seed_steps": 10, "random_steps": 5}
        config = replace(
            config,
            drqv2=replace(config.drqv2, **small),
            suite=replace(config.suite, action_repeat=100),
            off_policy=replace(config.off_policy, report_every=1000),
            steps=2000 + 1000 * more,
        )
    config = replace(config, bonus=bonus, device=device, out=folder)
    return config.steps, make_training(config)


@pytest.mark.parametrize(
    ("agent", "bonus"),
    [*(("ppo", name) for name in BONUSES), *(("drqv2", name) for name in SAMPLED)],
)
def test_agents_train_on_a_gpu_with_every_bonus(agent, bonus, tmp_path):
    steps, run = training(agent, tmp_path, "cuda", bonus)
    rows = list(run.train(steps))
    assert run.agent.updates > 0
    assert rows
    run.record(tmp_path)
    assert {p.device.type for p in run.agent.algorithm.network.parameters()} == {"cuda"}


@pytest.mark.parametrize(("first", "then"), [("cpu", "cuda"), ("cuda", "cpu")])
@pytest.mark.parametrize("agent", ["ppo", "drqv2"])
def test_a_run_is_continued_on_another_device(agent, first, then, tmp_path):
    steps, run = training(agent, tmp_path, first)
    list(run.train(steps))
    run.agent.save()
    checkpoint.save(tmp_path / "state.safetensors", run.state_dict())
    before = run.agent.updates
    longer, again = training(agent, tmp_path, then, more=1)
    again.load_state_dict(checkpoint.load(tmp_path / "state.safetensors"))
    for name, weights in run.agent.algorithm.network.state_dict().items():
        assert torch.equal(again.agent.algorithm.network.state_dict()[name].cpu(), weights.cpu())
    assert list(again.train(longer))
    assert again.agent.updates > before


def test_where_random_numbers_begin_anew_they_are_not_those_of_the_start(tmp_path):
    steps, run = training("ppo", tmp_path, "cuda")
    list(run.train(steps))
    _, fresh = training("ppo", tmp_path, "cpu")
    start = fresh.agent.algorithm.generator.get_state()
    fresh.load_state_dict(run.state_dict())
    assert not torch.equal(fresh.agent.algorithm.generator.get_state(), start)
