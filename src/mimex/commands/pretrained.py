"""Conversion of PPO checkpoints to NumPy policies, and loading of policy files."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from mimex.commands.build import LoadedPolicy, Which, load_agent, make_env
from mimex.config import TrainConfig, preset
from mimex.config.families.base import merged
from mimex.config.json import to_json
from mimex.envs.catalog import NAMES
from mimex.files import read_object
from mimex.policies import OBSERVATION, MLPPolicy, load_policy


def policy_of_run(
    run: Path, which: Which, trust_modules: Collection[str] = ()
) -> tuple[TrainConfig, MLPPolicy, int]:
    """Returns the settings of a run, its policy in NumPy, and the step of its checkpoint."""
    config, agent, step = load_agent(run, which, trust_modules)
    if config.agent != "ppo":
        raise ValueError(f"{run} was trained with --agent {config.agent}, but export needs ppo")
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


def load_pretrained(name: str) -> LoadedPolicy:
    """Loads a pretrained policy by task, or a policy file."""
    policy = load_policy(name)
    card = policy.card
    try:
        if card["task"] not in NAMES:
            raise ValueError(
                f"its task is {card['task']}, but only tasks of PixMC-Sparse are supported: use "
                "the run folder"
            )
        config = preset("cpu", card["observation"], card["task"], "ppo", card["reward"])
        world = {key: tuple(x) if isinstance(x, list) else x for key, x in card["world"].items()}
        chosen = {key: card[key] for key in ("reward", "observation", "bonus", "seed")}
        config = merged(config, {**chosen, "world": world}).checked()
        return LoadedPolicy(config, policy, int(card["steps"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the model card of {name} is invalid: {error}") from error


def changed_world(config: TrainConfig) -> dict[str, Any]:
    """Returns the task settings that differ from the defaults, as JSON values."""
    usual = vars(preset("cpu", task=config.task).world)
    changed = {key: value for key, value in vars(config.world).items() if value != usual[key]}
    return {key: to_json(value) for key, value in changed.items()}


def _inputs(space: spaces.Space[Any]) -> dict[str, tuple[int, ...]]:
    parts = space.spaces if isinstance(space, spaces.Dict) else {OBSERVATION: space}
    for name, part in parts.items():
        image = part.dtype == np.uint8 and len(part.shape or ()) == 3
        if not isinstance(part, spaces.Box) or image:
            raise ValueError(
                f"{name} is {'an image' if image else part}, but export only supports vector "
                "observations (Box, or Dict of Box): evaluate the run folder instead"
            )
    return {name: tuple(part.shape or ()) for name, part in parts.items()}


def _action(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return {"action_shape": (), "action_dtype": space.dtype.name, "first_action": first}
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"the action space is {space}, but export only supports Box and Discrete: evaluate the "
            "run folder instead"
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
    """Returns the model card of a policy, without evaluation results."""
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
    """Returns the command that trained a run, without local paths."""
    words = shlex.split(command)[1:]
    if "--out" in words:
        index = words.index("--out")
        del words[index : index + 2]
    return shlex.join(["mimex", *(word for word in words if not word.startswith("--out="))])
