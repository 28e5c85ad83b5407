"""From a run folder back to its agent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from mimex.commands.build import make_algorithm, make_env
from mimex.config import TrainConfig
from mimex.contracts import Policy
from mimex.train.checkpoint import Checkpoints
from mimex.train.folder import RunFolder

Which = Literal["latest", "best"]


def load_agent(run: Path, which: Which) -> tuple[TrainConfig, Policy, int]:
    """The settings of a run, its agent, and the step that the agent was saved at.

    Args:
        run: The run folder.
        which: The "latest" checkpoint, or that of the "best" evaluation.
    """
    folder = RunFolder(run)
    saved_config = folder.config
    if saved_config is None:
        raise ValueError(f"{run} is no run folder: it has no config.json; `mimex train` makes one")
    try:
        config = TrainConfig.from_dict(saved_config).checked()
    except ValueError as error:
        raise ValueError(f"{run / 'config.json'} is no run's: {error}; restore it") from error
    checkpoints = Checkpoints(folder.checkpoints)
    saved = checkpoints.latest() if which == "latest" else checkpoints.best()
    if saved is None:
        raise ValueError(f"{run} has no {which} checkpoint yet: train it further")
    env = make_env(config, 1)
    agent = make_algorithm(config, env)
    env.close()
    with checkpoints.fitting():
        agent.load_state_dict(saved[1]["agent"]["algorithm"])
    return config, agent, saved[0]
