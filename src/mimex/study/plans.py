"""The paper's figures as plans, each at two scales.

``paper`` has the published setting: pictures through a frozen ViT, raw bonus with beta 0.05, and
the released code's budgets, in updates of 512 environments x 32 steps. ``cpu`` learns from state,
with budgets that two cores can pay; its hours are reckoned from the speeds in
benchmarks/results/train.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mimex.envs.nearest import choose
from mimex.study.plan import Plan, Scale, Settings

PIXMC = tuple(
    f"{robot}{kind}"
    for kind in ("Reach", "Cabinet", "Pick", "Move")
    for robot in ("Franka", "Kuka")
)
DMC = (
    "dmc/cartpole_swingup_sparse",
    "dmc/acrobot_swingup",
    "dmc/finger_turn_easy",
    "dmc/finger_turn_hard",
    "dmc/quadruped_walk",
    "dmc/quadruped_run",
)
ABLATED = ("KukaReach", "KukaPick")
METHODS: Mapping[str, Settings] = {
    bonus: {"bonus": bonus} for bonus in ("none", "icm", "rnd", "mimex")
}

PAPER_BETA = 0.05

A_ROLLOUT = 512 * 32
"""Environment steps an update, as published."""

_PUBLISHED = {  # updates and learning rate in the released training files
    "FrankaReach": (500, 1e-3),  # of MVP, whose file the release keeps
    "FrankaCabinet": (1500, 1e-3),
    "FrankaPick": (4000, 1e-3),
    "FrankaMove": (4000, 1.5e-3),
    "KukaReach": (1000, 1.5e-3),
    "KukaCabinet": (2000, 5e-4),
    "KukaPick": (4000, 5e-4),  # taken from KukaMove: its own file was not found
    "KukaMove": (4000, 5e-4),
}

_CPU_STEPS = {  # environment steps
    "FrankaReach": 1_250_000,
    "KukaReach": 2_500_000,
    "FrankaCabinet": 4_000_000,
    "KukaCabinet": 4_000_000,
    "FrankaPick": 6_000_000,
    "KukaPick": 6_000_000,
    "FrankaMove": 6_000_000,
    "KukaMove": 6_000_000,
}
_EVALUATIONS = 10
"""A run at the scale of a CPU, so that its curve has a shape and costs a few per cent."""

DMC_PAPER_FRAMES = 3_100_000
"""DrQ-v2's budget for tasks of medium difficulty, which all six are."""

DMC_CPU_FRAMES = 500_000


def _paper(tasks: Iterable[str]) -> Scale:
    return Scale(
        "Published budgets, pictures through a frozen ViT-S/16, beta 0.05: for a cluster. Add "
        "--set vision.checkpoint=FILE with the weights.",
        {
            "preset": "paper",
            "observation": "pixels",
            "scale.beta": PAPER_BETA,
            "eval.every": 50 * A_ROLLOUT,
        },
        {
            task: {"steps": updates * A_ROLLOUT, "ppo.lr": lr}
            for task, (updates, lr) in _PUBLISHED.items()
            if task in tasks
        },
    )


def _cpu(tasks: Iterable[str], cost: str) -> Scale:
    return Scale(
        f"From state, the bonus beside the task's reward (docs/how-big.md). {cost}",
        {"observation": "oracle"},
        {
            task: {"steps": _CPU_STEPS[task], "eval.every": _CPU_STEPS[task] // _EVALUATIONS}
            for task in tasks
        },
    )


def _pixmc(tasks: tuple[str, ...], cost: str) -> dict[str, Scale]:
    return {"cpu": _cpu(tasks, cost), "paper": _paper(tasks)}


def _ablation(name: str, about: str, choices: Mapping[str, Settings], cost: str) -> Plan:
    return Plan(
        name,
        about,
        ABLATED,
        {name: choices},
        _pixmc(ABLATED, cost),
        {"reward": "sparse", "bonus": "mimex"},
        figure="ablation",
    )


_ALL = (
    Plan(
        "baselines-pixmc",
        "Does MIMEx help on sparse manipulation, against noise alone, ICM and RND?",
        PIXMC,
        {"method": METHODS},
        _pixmc(
            PIXMC,
            "Two cores take about 11 minutes for FrankaReach with 3 seeds, and about 4 hours a "
            "seed for all eight tasks.",
        ),
        {"reward": "sparse"},
    ),
    Plan(
        "baselines-dmc",
        "Does MIMEx help DrQ-v2 on tasks of the DeepMind Control suite with little reward?",
        DMC,
        {"method": METHODS},
        {
            "cpu": Scale(
                "From state, 500,000 frames: enough to tell whether reward is found, not to reach "
                "the published scores, which take 3 million from pictures.",
                {"observation": "state", "steps": DMC_CPU_FRAMES, "eval.every": 25_000},
            ),
            "paper": Scale(
                "Pictures, 3.1 million frames, batch 1024, n-step 1, beta 0.05: for a cluster.",
                {"preset": "paper", "observation": "pixels", "steps": DMC_PAPER_FRAMES},
            ),
        },
        metric="eval/return",
    ),
    _ablation(
        "sequence-length",
        "How long should a window be?",
        {f"T = {length}": {"mimex.length": length} for length in (2, 3, 4, 5, 6)},
        "Two cores take about 2 hours a seed.",
    ),
    _ablation(
        "masks-per-window",
        "Does averaging over several masks help?",
        {f"K = {masks}": {"mimex.masks": masks} for masks in (1, 5)},
        "Two cores take about 1.5 hours a seed, most of it at K = 5.",
    ),
    _ablation(
        "decoder-size",
        "Does a larger decoder help?",
        {
            "small": {},
            "larger": {
                "mimex.size.decoder_width": 128,
                "mimex.size.decoder_depth": 2,
                "mimex.size.decoder_heads": 4,
            },
        },
        "Two cores take about an hour a seed.",
    ),
    _ablation(
        "mask-ratio",
        "How much of a window should be hidden?",
        {f"{ratio:.0%}": {"mimex.mask_ratio": ratio} for ratio in (0.2, 0.5, 0.7)},
        "Two cores take about 1.2 hours a seed.",
    ),
    _ablation(
        "mask-type",
        "Should whole steps be hidden, or single numbers of all steps?",
        {
            "time 70%": {"mimex.mask_type": "time", "mimex.mask_ratio": 0.7},
            **{
                f"feature {ratio:.0%}": {"mimex.mask_type": "feature", "mimex.mask_ratio": ratio}
                for ratio in (0.8, 0.9, 0.95)
            },
        },
        "Two cores take about 1.5 hours a seed.",
    ),
    Plan(
        "reward-sparsity",
        "How far does MIMEx carry when the reward says less and less?",
        ("KukaPick",),
        {
            "reward": {
                f"{reward}, {bonus}": {"reward": reward, "bonus": bonus}
                for reward, bonus in (
                    ("dense", "none"),
                    ("sparse", "none"),
                    ("sparse", "mimex"),
                    ("sparser", "mimex"),
                )
            }
        },
        _pixmc(("KukaPick",), "Two cores take about an hour a seed."),
        figure="ablation",
    ),
    Plan(
        "difficulty",
        "Where is exploration the problem? Plain PPO on every task, with less and less reward.",
        PIXMC,
        {"reward": {reward: {"reward": reward} for reward in ("dense", "sparse", "sparser")}},
        _pixmc(PIXMC, "Two cores take about 3 hours for the one seed."),
        {"bonus": "none"},
        seeds=1,
        figure="bars",
    ),
)

PLANS = {plan.name: plan for plan in _ALL}


def named(name: str) -> Plan:
    """The plan of a name."""
    return PLANS[choose("the plan", name, tuple(PLANS))]
