"""PPO compared with Stable-Baselines3's and rsl_rl's on the same environments.

    pip install stable-baselines3 rsl-rl-lib
    python -m benchmarks.peers --seeds 0 1 2          trains what has not been trained yet
    python -m benchmarks.curves collect peers runs/peers
    python -m benchmarks.tables peers

Each run becomes a run folder, runs/peers/TASK-LIBRARY-SEED, when it is finished, and is then
skipped. All have dense reward, the same step budget, one thread, and the same evaluation: the mean
action of the policy in one episode from each of the same starts (`mimex.train.evaluate`). Seconds
are processor time of collecting and learning, without evaluations.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from mimex.agents.factory import seed_for
from mimex.commands.build import make_env, make_training
from mimex.config import TrainConfig, parse
from mimex.nn.parallel import use_workers
from mimex.train.evaluate import evaluate

RUNS = Path("runs/peers")

Learner = tuple[Callable[[], int], Callable[[Any], Any]]
"""A function that collects a rollout, trains on it and returns its steps; and the mean policy."""

Rows = list[dict[str, float]]
"""Step, CPU seconds and success of each evaluation."""

ISAAC_LAB: dict[str, tuple[Any, ...]] = {
    # steps, hidden, normalized observations, epochs, entropy, learning rate, gamma, KL
    "FrankaReach": (24, [64, 64], False, 8, 0.001, 1e-3, 0.99, 0.01),
    "FrankaPick": (24, [256, 128, 64], False, 5, 0.006, 1e-4, 0.98, 0.01),
    "FrankaCabinet": (96, [256, 128, 64], False, 5, 0.001, 5e-4, 0.99, 0.02),
    "KukaPick": (32, [512, 256, 128], True, 5, 0.005, 1e-3, 0.99, 0.01),
}
"""rsl_rl's settings for the nearest task of github.com/isaac-sim/IsaacLab: source/isaaclab_tasks/
isaaclab_tasks/manager_based/manipulation/{reach,lift,cabinet}/config/franka/agents/rsl_rl_ppo_cfg.py
(032e26b, 186c08f, 6ae74b0), and for the Kuka with an Allegro hand, which lifts objects there too,
dexsuite/config/kuka_allegro/agents/rsl_rl_ppo_cfg.py (286e3bd). `rsl_rl` has what they share."""


def step_seconds(env: Any) -> float:
    """Duration of a step, by which Isaac Lab's RewardManager multiplies every reward.

    Its settings count on it: a value loss that is clipped at 0.2 cannot follow larger values.
    """
    return 1.0 / float(env.unwrapped.settings.control_hz)


def sb3_env(env: Any, seed: int, reward_scale: float = 1.0) -> Any:
    """Return a vector environment of Stable-Baselines3, which bootstraps on truncation."""
    from stable_baselines3.common.vec_env import VecEnv

    class Adapter(VecEnv):
        close = set_attr = env_method = env_is_wrapped = None  # abstract there, never called

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(env, attr_name)] * env.num_envs

        def reset(self) -> Any:
            return env.reset(seed=seed)[0]

        def step_async(self, actions: Any) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            observation, rewards, terminated, truncated, info = env.step(self._actions)
            infos: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
            for row in np.flatnonzero(terminated | truncated):
                infos[row]["terminal_observation"] = info["final_obs"][row]
                infos[row]["TimeLimit.truncated"] = bool(truncated[row])
            return observation, rewards * reward_scale, terminated | truncated, infos

    return Adapter(env.num_envs, env.single_observation_space, env.single_action_space)


def _sb3(env: Any, config: TrainConfig, norm: dict[str, Any], settings: dict[str, Any]) -> Learner:
    from stable_baselines3 import PPO
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(env, **norm)
    model = PPO("MlpPolicy", env, seed=seed_for(config, "weights"), device="cpu", **settings)
    model.set_logger(Logger(None, []))

    def advance() -> int:
        before = model.num_timesteps
        model.learn(env.num_envs * model.n_steps, log_interval=None, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    return advance, lambda seen: model.predict(env.normalize_obs(seen), deterministic=True)[0]


def sb3_parallel(config: TrainConfig) -> Learner:
    """Stable-Baselines3 as its maintainer has it for robots in thousands of environments.

    github.com/isaac-sim/IsaacLab (0efea6f, pull request 2022 by A. Raffin), source/isaaclab_tasks/
    isaaclab_tasks/manager_based/locomotion/velocity/config/a1/agents/sb3_ppo_cfg.yaml. Rewards are
    multiplied by the duration of a step as there; 512 environments in place of 4,096.
    """
    env, steps = make_env(config, config.envs), 24
    settings: dict[str, Any] = {
        "n_steps": steps, "batch_size": steps * config.envs // 4, "n_epochs": 5, "gamma": 0.99,
        "gae_lambda": 0.95, "learning_rate": 1e-3, "clip_range": 0.2, "ent_coef": 0.005,
        "vf_coef": 1.0, "max_grad_norm": 1.0,
    }  # fmt: skip
    settings["policy_kwargs"] = {
        "activation_fn": torch.nn.ELU, "net_arch": [512, 256, 128], "ortho_init": False,
        "optimizer_kwargs": {"eps": 1e-8},
    }  # fmt: skip
    adapted = sb3_env(env, seed_for(config, "environment"), step_seconds(env))
    return _sb3(adapted, config, {"norm_reward": False, "clip_obs": 10.0}, settings)


class RslEnv:
    """A vector environment for rsl_rl (`rsl_rl.env.VecEnv`)."""

    device, cfg = "cpu", None

    def __init__(self, env: Any, seed: int, step_dt: float | None = None) -> None:
        self.step_dt = step_seconds(env) if step_dt is None else step_dt  # rewards' factor
        self._env, self.unwrapped = env, self
        self.num_envs, self.num_actions = env.num_envs, env.single_action_space.shape[0]
        self._observation = env.reset(seed=seed)[0]
        simulation = env.unwrapped  # first episodes get random ages, as by Isaac Lab's train.py
        ages = np.random.default_rng(seed).integers(simulation.episode_steps, size=self.num_envs)
        simulation.set_state(simulation.get_state() | {"steps": ages})

    def get_observations(self) -> Any:
        from tensordict import TensorDict

        return TensorDict({"policy": torch.from_numpy(self._observation)}, [self.num_envs])

    def step(self, actions: torch.Tensor) -> Any:
        self._observation, rewards, terminated, truncated, _ = self._env.step(actions.numpy())
        scaled = torch.from_numpy(rewards * self.step_dt).float()
        ended = torch.from_numpy(terminated | truncated).long()
        return self.get_observations(), scaled, ended, {"time_outs": torch.from_numpy(truncated)}


def rsl_rl(config: TrainConfig) -> Learner:
    """rsl_rl as Isaac Lab has it for the nearest of its tasks: `ISAAC_LAB` in benchmarks/peers.py.

    As there, rewards are multiplied by the duration of a step and the first episodes have random
    ages. There are 512 environments in place of 4,096.
    """
    steps, hidden, normalize, epochs, entropy, rate, gamma, kl = ISAAC_LAB[config.task]
    network = {
        "class_name": "MLPModel", "hidden_dims": hidden, "activation": "elu",
        "obs_normalization": normalize,
    }  # fmt: skip
    noise = {"class_name": "GaussianDistribution", "init_std": 1.0}
    algorithm = {
        "class_name": "PPO", "learning_rate": rate, "schedule": "adaptive", "desired_kl": kl,
        "num_learning_epochs": epochs, "num_mini_batches": 4, "gamma": gamma, "lam": 0.95,
        "entropy_coef": entropy, "clip_param": 0.2, "value_loss_coef": 1.0, "max_grad_norm": 1.0,
        "use_clipped_value_loss": True,
    }  # fmt: skip
    settings = {
        "num_steps_per_env": steps, "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": noise}, "critic": network, "algorithm": algorithm,
    }  # fmt: skip
    env = RslEnv(make_env(config, config.envs), seed_for(config, "environment"))
    return rsl_learner(env, config, settings)


def rsl_learner(env: RslEnv, config: TrainConfig, settings: dict[str, Any]) -> Learner:
    """rsl_rl with some settings."""
    from rsl_rl.runners import OnPolicyRunner

    torch.manual_seed(seed_for(config, "weights"))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        runner = OnPolicyRunner(env, settings)

    def advance() -> int:
        runner.learn(1)
        return int(env.num_envs * settings["num_steps_per_env"])

    @torch.inference_mode()
    def policy(observation: Any) -> Any:
        return runner.get_inference_policy()({"policy": torch.from_numpy(observation)}).numpy()

    return advance, policy


def ours(config: TrainConfig) -> Learner:
    """`mimex train TASK --reward dense`: the cpu preset, the same for all tasks."""
    training = make_training(config)
    rows = training.train(sys.maxsize)

    def advance() -> int:
        before = training.step
        next(rows)
        return training.step - before

    return advance, training.agent.algorithm.policy


LIBRARIES: dict[str, tuple[Callable[[TrainConfig], Learner], str]] = {
    "mimex": (ours, "mimex"),
    "sb3-parallel": (sb3_parallel, "stable-baselines3"),
    "rsl_rl": (rsl_rl, "rsl-rl-lib"),
}

BUDGETS = {
    "FrankaReach": 500_000,
    "FrankaPick": 4_000_000,
    "FrankaCabinet": 2_500_000,
    "KukaPick": 3_000_000,
}
"""Steps of a run, by task."""


def train(make: Callable[[TrainConfig], Learner], config: TrainConfig) -> Rows:
    """Train to the end of the budget."""
    use_workers(1)  # and PyTorch with it
    advance, policy = make(config)
    env = make_env(config, config.eval.episodes)
    player: Any = SimpleNamespace(  # in the form of an agent: `evaluate` plays it as it plays ours
        policy=policy
    )
    rows, step, seconds, every = [], 0, 0.0, config.eval.every
    while step < config.steps:
        before, start = step, time.process_time()
        step += advance()
        seconds += time.process_time() - start
        if step // every > before // every or step >= config.steps:
            score = evaluate(env, player, seed=seed_for(config, "evaluation")).score
            rows.append({"step": step, "time/cpu_seconds": seconds, "eval/success": score})
            print(f"  {step:,} steps, {seconds / 60:.1f} min, success {score:.0%}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--tasks", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, help="budget of each run, instead of BUDGETS")
    parser.add_argument("--every", type=int, default=125_000, help="steps between evaluations")
    parser.add_argument("--envs", type=int, default=512, help="parallel environments")
    parser.add_argument("--out", type=Path, default=RUNS, help="folder of the run folders")
    options = parser.parse_args()
    for seed, task, library in product(options.seeds, options.tasks, options.libraries):
        path = options.out / f"{task}-{library}-{seed}"
        if (path / "metrics.jsonl").exists():
            continue
        arguments = [
            task, "--reward", "dense", "--steps", str(options.steps or BUDGETS[task]),
            "--seed", str(seed), "--envs", str(options.envs), "--threads", "1",
            "--eval.every", str(options.every),
        ]  # fmt: skip
        print(f"{library} on {task}, seed {seed}", flush=True)
        config = parse(arguments).checked()
        make, package = LIBRARIES[library]
        save(path, config, library, package, train(make, config))


def save(path: Path, config: TrainConfig, method: str, package: str, rows: Rows) -> None:
    """Write the run folder of a finished run."""
    about = {"versions": {method: version(package)}}
    settings = {"task": config.task, "agent": method, "seed": config.seed, "steps": config.steps}
    path.mkdir(parents=True, exist_ok=True)
    (path / "about.json").write_text(json.dumps(about))
    (path / "config.json").write_text(json.dumps(settings))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
