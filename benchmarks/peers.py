"""PPO beside its peers: `mimex train`, Stable-Baselines3 and rsl_rl on the same environments.

    pip install stable-baselines3 rsl-rl-lib
    python -m benchmarks.peers --steps 8000000 --seeds 0 1 2    trains what is not finished yet
    python -m benchmarks.peers --libraries mimex --runs DIR     takes our runs from their folders
    python -m benchmarks.peers_report                           writes results/peers.md and .png

Each run becomes results/peers/LIBRARY-TASK-SEED.csv when it is finished, and is then skipped; a
peer's run that was interrupted begins anew, ours continues. All have dense reward, the same step
budget and threads, and are evaluated alike: the policy's mean plays one episode from each of the
same starts (`mimex.train.evaluate`). Seconds are those of collecting and learning (ours with logs
and checkpoints), without evaluations. Runs are made in turn; let nothing else run beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import subprocess
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

from mimex.commands.build import make_env, seed_for
from mimex.config import MAY_CHANGE, TrainConfig, parse
from mimex.files import replacing
from mimex.nn.parallel import available_cores
from mimex.study.runs import Run, find_runs
from mimex.train.evaluate import evaluate

RESULTS = Path(__file__).parent / "results" / "peers"
COLUMNS = ("library", "version", "task", "seed", "threads", "step", "seconds", "success")

Learner = tuple[Callable[[], int], Callable[[Any], Any]]
"""Collects a rollout, learns from it and returns its steps; and the policy's mean."""

Rows = list[tuple[int, float, float]]
"""Step, seconds and success of each evaluation."""

ZOO_ENVS = 16
"""As pybullet-defaults, LunarLander and BipedalWalkerHardcore have in the Zoo's ppo.yml."""

ISAAC_LAB: dict[str, tuple[Any, ...]] = {
    # steps, hidden, normalised observations, epochs, entropy, learning rate, gamma, KL
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
    """A vector environment as one of Stable-Baselines3, which bootstraps where time was up."""
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


def sb3(config: TrainConfig) -> Learner:
    """Stable-Baselines3 as the RL Zoo has it for MuJoCo.

    github.com/DLR-RM/rl-baselines3-zoo, hyperparams/ppo.yml (208b6fd), `mujoco-defaults`: PPO's own
    defaults (2,048 steps, batches of 64, 10 epochs, 3e-4, tanh 64-64), observations and rewards
    normalised. 16 environments, as often there. Its one arm is PyBullet's Reacher of two joints.
    """
    env = make_env(config, ZOO_ENVS)
    return _sb3(sb3_env(env, seed_for(config, "environment")), config, {}, {})


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
    """A vector environment as rsl_rl wants it (`rsl_rl.env.VecEnv`)."""

    device, cfg = "cpu", None

    def __init__(self, env: Any, seed: int) -> None:
        self._env, self._scale = env, step_seconds(env)
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
        paid = torch.from_numpy(rewards * self._scale).float()
        ended = torch.from_numpy(terminated | truncated).long()
        return self.get_observations(), paid, ended, {"time_outs": torch.from_numpy(truncated)}


def rsl_rl(config: TrainConfig) -> Learner:
    """rsl_rl as Isaac Lab has it for the nearest of its tasks: `ISAAC_LAB` in benchmarks/peers.py.

    As there, rewards are multiplied by the duration of a step and the first episodes have random
    ages. There are 512 environments in place of 4,096.
    """
    from rsl_rl.runners import OnPolicyRunner

    steps, hidden, normalise, epochs, entropy, rate, gamma, kl = ISAAC_LAB[config.task]
    network = {
        "class_name": "MLPModel", "hidden_dims": hidden, "activation": "elu",
        "obs_normalization": normalise,
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
    torch.manual_seed(seed_for(config, "weights"))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        runner = OnPolicyRunner(env, settings)

    def advance() -> int:
        runner.learn(1)
        return int(env.num_envs * steps)

    @torch.inference_mode()
    def policy(observation: Any) -> Any:
        return runner.get_inference_policy()({"policy": torch.from_numpy(observation)}).numpy()

    return advance, policy


PEERS: dict[str, tuple[Callable[[TrainConfig], Learner], str]] = {
    "sb3": (sb3, "stable-baselines3"),
    "sb3-parallel": (sb3_parallel, "stable-baselines3"),
    "rsl_rl": (rsl_rl, "rsl-rl-lib"),
}
LIBRARIES = ("mimex", *PEERS)


def train_peer(library: str, config: TrainConfig) -> Rows:
    """Trains a peer to the end of its budget."""
    torch.set_num_threads(config.threads or available_cores())
    advance, policy = PEERS[library][0](config)
    env = make_env(config, config.eval.episodes)
    player: Any = SimpleNamespace(  # in the form of an agent: `evaluate` plays it as it plays ours
        policy=lambda seen, deterministic, step: policy(seen)
    )
    rows, step, seconds, every = [], 0, 0.0, config.eval.every
    while step < config.steps:
        before, start = step, time.perf_counter()
        step += advance()
        seconds += time.perf_counter() - start
        if step // every > before // every or step >= config.steps:
            score = evaluate(env, player, seed=seed_for(config, "evaluation")).score
            rows.append((step, seconds, score))
            print(f"  {step:,} steps, {seconds / 60:.1f} min, success {score:.0%}", flush=True)
    return rows


def our_rows(run: Run) -> Rows:
    """The evaluations of one of our runs, without the time that they took."""
    steps, success = run.columns["step"], run.columns["eval/success"]
    rollout = run.config["envs"] * run.config["loop"]["rollout_steps"]
    evaluating = run.columns.get("time/evaluating", np.zeros(len(steps)))  # of the row before
    spent = rollout / run.columns["time/steps_per_second"] - np.nan_to_num(evaluating)
    seconds = spent.cumsum()
    return [(int(steps[i]), seconds[i], success[i]) for i in np.flatnonzero(np.isfinite(success))]


def check(run: Run, config: TrainConfig) -> None:
    """Refuses a run of ours that was not made as the script makes them."""
    expected, ignored = config.to_dict(), {*MAY_CHANGE, "horizon", "eval"} - {"threads"}
    found = run.config | {"threads": run.config["threads"] or run.about.get("cores")}
    other = [key for key in expected if key not in ignored and found.get(key) != expected[key]]
    if other or run.columns["step"][-1] < config.steps:
        raise SystemExit(
            f"{run.path} cannot be compared: its {', '.join(other) or 'steps'} differ from those "
            f"of `mimex train {config.task} --reward dense --steps {config.steps} --threads "
            f"{config.threads}`. Leave it out of --runs to train it, or give --threads or --steps."
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--tasks", nargs="+", choices=ISAAC_LAB, default=list(ISAAC_LAB))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=8_000_000, help="budget of each run")
    parser.add_argument("--every", type=int, default=250_000, help="steps between evaluations")
    parser.add_argument("--envs", type=int, default=512, help=f"of all but sb3 ({ZOO_ENVS})")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--runs", nargs="+", type=Path, default=[], help="our runs made before")
    parser.add_argument("--folders", type=Path, default=Path("runs/peers"), help="of our new runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    dense = [run for run in find_runs(options.runs) if run.config["reward"] == "dense"]
    ours = {(run.task, run.seed): run for run in dense if run.config["bonus"] == "none"}
    for seed, task, library in product(options.seeds, options.tasks, options.libraries):
        path = options.results / f"{library}-{task}-{seed}.csv"
        if path.exists() and int(path.read_text().split(",")[-3]) >= options.steps:
            continue
        arguments = [
            task, "--reward", "dense", "--steps", str(options.steps), "--seed", str(seed),
            "--envs", str(options.envs), "--threads", str(options.threads),
            "--eval.every", str(options.every), "--out", str(options.folders / f"{task}-{seed}"),
        ]  # fmt: skip
        config = parse(arguments).checked()
        print(f"{library} on {task}, seed {seed}", flush=True)
        if library == "mimex":
            if (run := ours.get((task, seed))) is None:
                command = [sys.executable, "-m", "mimex.cli", "train", *arguments]
                if code := subprocess.run(command).returncode:
                    raise SystemExit(code)
                (run,) = find_runs([config.folder])
            check(run, config)
            revision = run.about.get("git_revision") or "unknown"  # 40 digits, perhaps "-dirty"
            made, rows = revision[:10] + revision[40:], our_rows(run)
        else:
            made, rows = version(PEERS[library][1]), train_peer(library, config)
        with replacing(path) as aside, aside.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for step, seconds, success in rows:
                run_of = (library, made, task, seed, options.threads)
                writer.writerow((*run_of, step, f"{seconds:.2f}", f"{success:.4f}"))


if __name__ == "__main__":
    main()
