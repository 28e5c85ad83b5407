"""Runs the experts: many episodes for a success rate, or one for a video."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mimex.envs import scene
from mimex.envs.camera import Camera, Image
from mimex.envs.catalog import ROBOTS, expert_classes, published_task, robot_and_kind
from mimex.envs.experts.base import Expert

EXPERTS: dict[str, type[Expert]] = {
    task: expert for robot in ROBOTS for task, expert in expert_classes(robot).items()
}


def expert_for(task: str) -> type[Expert]:
    """Return the expert of a task such as "FrankaPick"."""
    published = published_task(task)
    if published not in EXPERTS:
        raise ValueError(f"task is {task!r}, which has no expert; expected one of {list(EXPERTS)}")
    return EXPERTS[published]


def run(task: str, seeds: Sequence[int], **settings: Any) -> NDArray[np.bool_]:
    """Run a task's expert for one episode per seed, in parallel.

    Args:
        task: Task name, such as "FrankaPick".
        seeds: The episode of seed k is that of `gymnasium.make(f"mimex/{task}-v0")` with
            `reset(seed=k)`.
        **settings: Settings of the task, such as `engine="warp"`.

    Returns:
        Whether each episode was a success, (len(seeds),).
    """
    expert_class = expert_for(task)
    env: Any = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=len(seeds), **settings)
    env.reset(seed=list(seeds))
    expert = expert_class(env)
    success = np.zeros(len(seeds), bool)
    running = np.ones(len(seeds), bool)
    while running.any():
        _, _, terminated, truncated, info = env.step(expert.act(env))
        ended = terminated | truncated
        # Where an episode ended, `info` describes the next one.
        success |= running & ~ended & info["success"]
        if ended.any():
            success |= running & ended & info["final_info"]["success"]
        running &= ~ended & ~success
    env.close()
    return success


def demonstrate(
    task: str, seed: int = 0, *, inset: int = 0, every: int = 1, linger: int = 30
) -> Iterator[Image]:
    """Yield images (height, width, 3) of an expert's episode.

    Args:
        task: Task name, such as "FrankaPick".
        seed: Seed of the episode.
        inset: Size of the wrist image in the upper left corner (pixels); 0 disables it.
        every: Control steps between images.
        linger: Number of steps to continue after success.
    """
    expert_class = expert_for(task)
    env: Any = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=1, render_mode="rgb_array")
    env.reset(seed=[seed])
    expert = expert_class(env)
    wrist = _wrist_camera(env.unwrapped, task, inset) if inset else None
    ended, step, after = False, 0, 0
    try:
        while not ended and after <= linger:
            if step % every == 0:
                image = env.render()[0]
                if wrist is not None:
                    image[:inset, :inset] = wrist.render()[0]
                yield image
            _, _, terminated, truncated, info = env.step(expert.act(env))
            ended = bool(terminated[0] | truncated[0])
            after += bool(info["success"][0])
            step += 1
    finally:
        if wrist is not None:
            wrist.close()
        env.close()


def _wrist_camera(env: Any, task: str, size: int) -> Camera:
    model = scene.build(env.robot, robot_and_kind(task)[1], quality="nice").compile()
    return Camera(env.engine, model, env.robot.wrist_camera, (size, size), nice=True)
