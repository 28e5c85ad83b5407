"""Plays an exported policy without PyTorch: python examples/play_onnx.py policy.onnx FrankaReach.

`mimex export RUN policy.onnx` writes the file. The model takes raw observations (batch, features)
and returns environment actions, so nothing else of the run is needed.
"""

import json
import sys

import gymnasium
import numpy as np
import onnxruntime

import mimex.envs  # noqa: F401 (registers the tasks)


def main(file: str, task: str, episodes: int = 3) -> None:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    card = json.loads(session.get_modelmeta().custom_metadata_map["card"])
    kinds = {"reward": card["reward"], "observation": card["observation"]}
    env = gymnasium.make(f"mimex/{task}-v0", **kinds, **card["world"])
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        total, ended, info = 0.0, False, {}
        while not ended:
            (actions,) = session.run(None, {"observation": observation[None].astype(np.float32)})
            observation, reward, terminated, truncated, info = env.step(actions[0])
            total, ended = total + float(reward), terminated or truncated
        print(f"episode {episode}: return {total:.2f}, success {info['success']}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
