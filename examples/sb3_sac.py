"""Stable-Baselines3 SAC with a bonus that is computed anew whenever steps are sampled.

python examples/sb3_sac.py [steps]
"""

import sys

from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

from mimex import MIMEx
from mimex.interop.sb3 import BonusReplayBuffer, ReplayBonus, load, save


def make_bonus() -> ReplayBonus:
    return ReplayBonus(
        MIMEx(normalise=True),
        learn_every=4,  # learn from every fourth sampled batch
    )


def main(steps: int = 3_000, folder: str = "sb3_sac_run") -> ReplayBonus:
    env = make_vec_env("MountainCarContinuous-v0", 1, seed=0)
    bonus = make_bonus()
    model = SAC(
        "MlpPolicy", env, learning_starts=200, buffer_size=50_000, batch_size=64, seed=0,
        device="cpu",
        replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": bonus},
    )  # fmt: skip
    model.learn(steps)
    print(bonus.metrics)
    save(model, folder)  # the policy, the replay buffer and the bonus
    again = make_bonus()
    model = load(SAC, folder, env, again, device="cpu")
    model.learn(50, reset_num_timesteps=False)
    return again


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
