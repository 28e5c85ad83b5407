"""Stable-Baselines3 PPO on a sparse task, with MIMEx: the car reaches the flag.

python examples/sb3_ppo.py [steps]        about a minute for 60,000 steps
"""

import sys

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from mimex import MIMEx
from mimex.interop.sb3 import load, save, with_bonus


class FlagOnly(gymnasium.Wrapper):
    """Pays 1 at the flag and nothing before: without exploration there is nothing to learn."""

    def step(self, action):
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info


def environments():
    env = make_vec_env("MountainCar-v0", 8, seed=0, wrapper_class=FlagOnly)
    arguments = with_bonus(env, MIMEx(normalize=True))  # the bonus joins the reward here
    return arguments | {"env": VecNormalize(arguments["env"], norm_reward=False)}


def main(steps: int = 60_000, folder: str = "sb3_ppo_run") -> float:
    model = PPO(
        "MlpPolicy", **environments(), n_steps=64, batch_size=128, n_epochs=4, gae_lambda=0.98,
        seed=0, device="cpu",
    )  # fmt: skip
    model.learn(steps)
    lengths = [episode["l"] for episode in model.ep_info_buffer]
    reached = sum(length < 200 for length in lengths) / len(lengths)
    print(f"{reached:.0%} of the last {len(lengths)} episodes reached the flag")
    save(model, folder)  # the policy, the normalizer and the bonus
    load(PPO, folder, **environments(), device="cpu")  # ... and back, to go on
    return reached


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
