"""From a run folder to a policy without PyTorch, and from a policy file to what can be evaluated.

This is the only module that knows how PPO stores its policy.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from mimex.commands.build import Which, load_agent, make_env
from mimex.config import TrainConfig, preset
from mimex.config.families.base import merged
from mimex.config.json import to_json
from mimex.envs.catalog import NAMES
from mimex.files import read_object
from mimex.policies import OBSERVATION, MLPPolicy, load_policy


def policy_of_run(
    run: Path, which: Which, trust_modules: Collection[str] = ()
) -> tuple[TrainConfig, MLPPolicy, int]:
    """The settings of a run, its policy in NumPy, and the step that it was saved at.

    Args:
        run: The run folder.
        which: The "latest" checkpoint, or that of the "best" evaluation.
        trust_modules: Modules that may be imported if the run's task is registered by one.
    """
    config, agent, step = load_agent(run, which, trust_modules)
    if config.agent != "ppo":
        raise ValueError(f"{run} was trained with --agent {config.agent}, but export takes ppo")
    env = make_env(config, 1)
    observations, actions = env.single_observation_space, env.single_action_space
    env.close()
    inputs = _inputs(observations)
    action = _action(actions)
    state: Mapping[str, Any] = agent.state_dict()  # type: ignore[attr-defined]  # PPO has one
    network, normalizer = state["network"], state["normalizer"]
    depths = sorted(
        int(name.split(".")[1])
        for name in network
        if name.startswith("actor.") and name.endswith(".weight")
    )
    layers = tuple(
        (_numpy(network[f"actor.{depth}.weight"]), _numpy(network[f"actor.{depth}.bias"]))
        for depth in depths
    )
    policy = MLPPolicy(
        inputs=inputs,
        mean=_numpy(normalizer["mean"]),
        scale=_numpy(normalizer["scale"]),
        clip=config.ppo.observation_clip,
        layers=layers,
        activation=config.ppo.activation,
        **action,
        card=_card(run, config, step),
    )
    return config, policy, step


def load_pretrained(name: str) -> tuple[TrainConfig, MLPPolicy, int]:
    """The settings that a policy file's environments are made with, the policy, and its step."""
    policy = load_policy(name)
    card = policy.card
    try:
        if card["task"] not in NAMES:
            raise ValueError(
                f"its task is {card['task']}, but only those of PixMC-Sparse are played from a "
                "file: use the run folder"
            )
        config = preset("cpu", card["observation"], card["task"], "ppo", card["reward"])
        world = {key: tuple(x) if isinstance(x, list) else x for key, x in card["world"].items()}
        chosen = {key: card[key] for key in ("reward", "observation", "bonus", "seed")}
        config = merged(config, {**chosen, "world": world}).checked()
        return config, policy, int(card["steps"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the model card of {name} makes no environment: {error}") from error


def changed_world(config: TrainConfig) -> dict[str, Any]:
    """Settings of a task that differ from its own, as JSON can say them."""
    usual = vars(preset("cpu", task=config.task).world)
    changed = {key: value for key, value in vars(config.world).items() if value != usual[key]}
    return {key: to_json(value) for key, value in changed.items()}


def _inputs(space: spaces.Space[Any]) -> dict[str, tuple[int, ...]]:
    parts = space.spaces if isinstance(space, spaces.Dict) else {OBSERVATION: space}
    for name, part in parts.items():
        image = part.dtype == np.uint8 and len(part.shape or ()) == 3
        if not isinstance(part, spaces.Box) or image:
            raise ValueError(
                f"{name} is {'an image' if image else part}, but export takes vector observations: "
                "a Box, or a Dict of them; evaluate the run folder instead"
            )
    return {name: tuple(part.shape or ()) for name, part in parts.items()}


def _action(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return {"action_shape": (), "action_dtype": space.dtype.name, "first_action": first}
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"the action space is {space}, but export takes Box and Discrete: evaluate the run "
            "folder instead"
        )
    bounds = np.stack([space.low.ravel(), space.high.ravel()]).astype(np.float32)
    return {
        "action_shape": tuple(space.shape),
        "action_dtype": space.dtype.name,
        "bounds": bounds if np.isfinite(bounds).all() else None,
    }


def _numpy(tensor: Any) -> Any:
    return tensor.detach().cpu().float().numpy()


def _card(run: Path, config: TrainConfig, step: int) -> dict[str, Any]:
    """What a model card says of a policy before it has been evaluated."""
    try:
        about = read_object(run / "about.json")
    except FileNotFoundError:
        about = {}
    return {
        "task": config.task,
        "reward": config.reward,
        "observation": config.observation,
        "world": changed_world(config),
        "agent": config.agent,
        "bonus": config.bonus,
        "seed": config.seed,
        "steps": step,
        "command": _command(about.get("command", "")),
        "version": (about.get("versions") or {}).get("mimex"),
        "revision": about.get("git_revision"),
    }


def _command(command: str) -> str:
    """The command that trained a run, without the paths of the machine that it ran on."""
    words = shlex.split(command)[1:]
    if "--out" in words:
        place = words.index("--out")
        del words[place : place + 2]
    return shlex.join(["mimex", *(word for word in words if not word.startswith("--out="))])
