"""Stable-Baselines3 SAC with a bonus that is computed anew whenever steps are sampled.

python examples/sb3_sac.py [steps]
"""

import sys

from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

from mimex import MIMEx
from mimex.interop.sb3 import ReplayBonus, load, save, with_bonus


def environment():
    return with_bonus(
        make_vec_env("MountainCarContinuous-v0", 1, seed=0),
        MIMEx(normalize=True),
        off_policy=True,
        learn_every=4,  # learn from every fourth sampled batch
    )


def main(steps: int = 3_000, folder: str = "sb3_sac_run") -> ReplayBonus:
    model = SAC(
        "MlpPolicy", **environment(), learning_starts=200, buffer_size=50_000, batch_size=64,
        seed=0, device="cpu",
    )  # fmt: skip
    model.learn(steps)
    print(model.replay_buffer.bonus.metrics)
    save(model, folder)  # the policy, the replay buffer and the bonus
    model = load(SAC, folder, **environment(), device="cpu")  # ... and back, to go on
    model.learn(50, reset_num_timesteps=False)
    return model.replay_buffer.bonus


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
