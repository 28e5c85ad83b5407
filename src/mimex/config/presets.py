"""The numbers of the presets, each with its reason; ``families`` says which task has which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mimex.agents.drqv2_settings import PUBLISHED
from mimex.agents.ppo_settings import PPOSettings
from mimex.bonus.size import PAPER
from mimex.train.on_policy import LoopSettings

PUBLISHED_ENVS = {"pixels": 512, "state": 256}
"""Environments side by side (MIMEx from pixels, MVP from state)."""

PUBLISHED_LRS = {"Franka": 1e-3, "Kuka": 5e-4}
PIXEL_LRS = {"FrankaMove": 1.5e-3, "KukaReach": 1.5e-3}
"""PPO's learning rate by robot, and the tasks that have another one from pixels (MVP's files
configs/ppo/train/*.yaml)."""

ALL_WINDOWS = 1 << 20
"""The release takes one optimizer step of the bonus per rollout, on all of its windows."""

PUBLISHED_SCALE = {"beta": 0.05, "normalize": False}
"""The paper's: the raw bonus."""

PUBLISHED_BONUSES: Mapping[str, Mapping[str, Any]] = {
    "mimex": {"size": PAPER, "lr": 1e-4, "mask_type": "time", "mask_ratio": 0.7},
    "rnd": {"lr": 1e-3},
    "pseudocount": {"lr": 1e-3},
    "disagreement": {"lr": 1e-3},
}
"""Where the published numbers are not the defaults; of the last two, which the paper does not have
in this form, what they had before a search."""

CPU = PPOSettings(
    lr_schedule="adaptive",
    epochs=3,
    minibatches=16,
    shuffle=True,
    clip=0.2,
    discount=0.98,
    initial_std=0.5,
    value_coef=1.0,
    value_gain=0.01,
    normalise_observations=True,
    normalise_values=True,
    separate_clips=True,
)
"""PPO of the cpu preset, for all tasks (benchmarks/results/learning/search.md). With a discount of
0.99 KukaPick is at 12 % after 1.5 million steps instead of at 75 (trials.md)."""

CPU_PIXELS = replace(CPU, lr=2e-4)
"""The same from pixels. With 1e-3 the policy moved too far in an update and was lost after 40,000
steps (FrankaReach dense, 64 px; with the learner of 0.1)."""

BESIDE_COSTS = {"reward_decay": 1.0, "survival_bonus": 1.0}
"""Scale of the bonus in the cpu preset on PixMC-Sparse. Every step costs an action penalty there,
and touching the arm ends the episode: the survival bonus pays an average step's cost back, or
agents learn to end their episodes (docs/how-big.md). Restarts keep what was found, so that beta
need not be reduced for it."""

SPARSE: Mapping[str, Any] = {
    "ppo": replace(CPU, min_std=0.45),
    "restarts": {"share": 0.25},
    "mimex": {"mask_type": "time", "mask_ratio": 0.7},
}
"""What the cpu preset changes for sparse reward from state on PixMC-Sparse, whatever the bonus. The
bonus also sees the object alone (of Reach the hand). The action penalty is the only steady signal
there and drives the policy's std to 0.2 within 0.5M steps, where dense reward keeps it at 0.4 to
0.48: hence the floor. Of an object at rest a hidden step is a copy of its neighbor, so that masking
whole steps rewards nothing but a moving object (docs/results.md)."""

STATE_ENVS, PIXEL_ENVS = 512, 64
"""Environments of the cpu preset."""

SMALL_STATE = replace(PUBLISHED, hidden=256, lr=1e-3, features="encoder")
"""DrQ-v2 of the cpu preset from a small state, which is some ten numbers, and is what the bonus
sees. Return on cartpole_swingup after
30,000 frames with the published learning rate of 1e-4: 247, with this one: 717 (seed 0)."""

SMALL_PICTURES: Mapping[str, Any] = {
    "steps": 100_000,
    "suite": {"image_size": 40, "quality": "fast"},
    "drqv2": replace(PUBLISHED, batch=64, filters=16, shift=2, hidden=256, lr=3e-4),
}
"""DrQ-v2 of the small preset, from pictures of the control suite: 100,000 frames take a core 28
minutes with MIMEx and 15 without. It learns dense cartpole_swingup, by frames nearly as the
published size does (docs/results.md); with a learning rate of 1e-3 the policy got stuck. Its scores
cannot be compared with published ones."""

SMALL: dict[str, Any] = {
    "envs": 16,
    "ppo": replace(
        CPU,
        adam_eps=1e-5,
        hidden=(64, 64),
        epochs=10,
        minibatches=4,
        discount=0.99,
        initial_std=1.0,
    ),
    "loop": LoopSettings(rollout_steps=128),
    "eval": {"every": 50_000, "episodes": 20},
    "track": {"checkpoint_every": 50_000},
}
"""PPO of the cpu preset on small tasks (gym/, dmc/): 2,048 steps a rollout, and networks of a size
that is usual there, which learned the small games as the larger ones did. No entropy bonus:
with 0.01 the policy's std grew in a continuous maze, which a count bonus then no longer solved.
With PyTorch's epsilon of Adam, 1e-8, a solved deep sea was lost for good in one of three seeds, by
steps that noise made; with 1e-5, as usual with PPO, it was kept
(benchmarks/results/learning/trials.md)."""

SMALL_PIXELS = SMALL | {"ppo": replace(SMALL["ppo"], lr=CPU_PIXELS.lr)}

REPLAY_ENVS = 8
"""Environments of DrQ-v2 on PixMC-Sparse."""

REPLAY_PIXELS = replace(PUBLISHED, std_steps=500_000)
REPLAY_STATE = replace(SMALL_STATE, std_steps=500_000)
"""DrQ-v2 on PixMC-Sparse, whose tasks are not easy: the noise falls as in those of the control
suite that DrQ-v2 calls medium."""
