"""rsl_rl's PPO on FrankaReachUp: without a bonus, with rsl_rl's own RND, and with MIMEx.

    pip install -e '.[envs,rsl]'
    python -m benchmarks.rsl_rl --seeds 0 1 2         trains what has not been trained yet
    python -m benchmarks.curves collect rsl_rl runs/rsl_rl
    python -m benchmarks.tables rsl_rl

All have sparse reward, one thread, and the evaluation of `benchmarks.peers`. PPO has the settings
of mimex's cpu preset, as far as rsl_rl has them.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import peers
from mimex import BonusScale, MIMEx
from mimex.agents.factory import seed_for
from mimex.commands.build import make_env
from mimex.config import TrainConfig, parse

TASK = "FrankaReachUp"
METHODS = ("mimex", "rsl_rl-rnd", "none")
WEIGHT = 0.3
"""Weight of both bonuses, each divided by the standard deviation of its discounted returns."""


def make(config: TrainConfig, method: str, weight: float = WEIGHT) -> peers.Learner:
    """rsl_rl with one bonus or none."""
    from mimex.interop.rsl_rl import add_bonus

    ppo = config.ppo
    network = {
        "class_name": "MLPModel", "hidden_dims": list(ppo.hidden), "activation": ppo.activation,
        "obs_normalization": True,
    }  # fmt: skip
    noise = {
        "class_name": "GaussianDistribution", "init_std": ppo.initial_std,
        "std_range": (ppo.min_std, 1e6),
    }  # fmt: skip
    algorithm: dict[str, Any] = {
        "class_name": "PPO", "learning_rate": ppo.lr, "schedule": "adaptive",
        "desired_kl": ppo.target_kl, "num_learning_epochs": ppo.epochs,
        "num_mini_batches": ppo.minibatches, "gamma": ppo.discount, "lam": ppo.gae_lambda,
        "entropy_coef": ppo.entropy_coef, "clip_param": ppo.clip,
        "value_loss_coef": ppo.value_coef, "max_grad_norm": ppo.grad_norm,
        "use_clipped_value_loss": False,
    }  # fmt: skip
    settings: dict[str, Any] = {
        "num_steps_per_env": config.loop.rollout_steps, "algorithm": algorithm,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": noise}, "critic": network,
    }  # fmt: skip
    env = peers.RslEnv(make_env(config, config.envs), seed_for(config, "environment"), 1.0)
    if method == "rsl_rl-rnd":
        settings["obs_groups"]["rnd_state"] = ["policy"]
        widths = {"predictor_hidden_dims": [256, 256], "target_hidden_dims": [256, 256]}
        algorithm["rnd_cfg"] = {
            "weight": weight, "reward_normalization": True, "state_normalization": True,
            "num_outputs": 16, "learning_rate": 1e-3, **widths,
        }  # fmt: skip
    elif method == "mimex":
        scale = BonusScale(weight, discount=ppo.discount)
        bonus = MIMEx(normalize=True, seed=seed_for(config, "bonus"))
        settings = add_bonus(settings, bonus, beta=scale)
    return peers.rsl_learner(env, config, settings)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--reward", default="sparse")
    parser.add_argument("--steps", type=int, default=1_500_000)
    parser.add_argument("--envs", type=int, default=512, help="parallel environments")
    parser.add_argument("--weight", type=float, default=WEIGHT, help="weight of the bonus")
    parser.add_argument("--out", type=Path, default=Path("runs/rsl_rl"))
    options = parser.parse_args()
    for seed, method in product(options.seeds, options.methods):
        path = options.out / f"{TASK}-{method}-{seed}"
        if (path / "metrics.jsonl").exists():
            continue
        arguments = [
            TASK, "--reward", options.reward, "--steps", str(options.steps), "--seed", str(seed),
            "--threads", "1", "--eval.every", "50000", "--envs", str(options.envs),
        ]  # fmt: skip
        print(f"{method}, seed {seed}", flush=True)
        config = parse(arguments).checked()
        rows = peers.train(partial(make, method=method, weight=options.weight), config)
        peers.save(path, config, method, "rsl-rl-lib", rows)


if __name__ == "__main__":
    main()
