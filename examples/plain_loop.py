"""A plain Gymnasium loop: wrap the environments, and the reward has the bonus in it.

python examples/plain_loop.py [steps]
"""

import sys

import gymnasium
import numpy as np

from mimex import MIMEx
from mimex.interop.vector import wrap_vector


def update(rewards: np.ndarray) -> None:
    """Your update; the rewards it gets are the sum of both."""


def main(steps: int = 500) -> dict[str, float]:
    envs = gymnasium.make_vec("Acrobot-v1", num_envs=8, vectorization_mode="sync")
    envs = wrap_vector(
        envs,
        MIMEx(length=5, normalize=True),
        learn_every=512,  # transitions
    )
    envs.action_space.seed(0)
    envs.reset(seed=0)
    extrinsic, intrinsic = [], []
    for _ in range(steps):
        actions = envs.action_space.sample()  # your policy here
        _, rewards, _, _, info = envs.step(actions)
        update(rewards)
        extrinsic.append(info["reward_extrinsic"])
        intrinsic.append(info["reward_intrinsic"])
    report = {
        "extrinsic": float(np.mean(extrinsic)),
        "intrinsic, first tenth": float(np.mean(intrinsic[: steps // 10])),
        "intrinsic, last tenth": float(np.mean(intrinsic[-steps // 10 :])),
    }
    print(report)
    return report


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
