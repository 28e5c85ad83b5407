"""Registry of agents. Each module holds one algorithm, its settings, presets and builder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mimex.agents.learner import Learner

AGENTS = {
    "ppo": ".ppo:PPOAgent",
    "drqv2": ".drqv2:DrQv2Agent",
}
"""Module and class of every agent, by the name used in settings and studies.

To add an agent, add its file and a line here. Register your own, for example "my_agents:Mine",
before ``mimex.config`` is imported."""


def agent_class(name: str) -> type[Learner]:
    """Imports the class of an agent."""
    module, _, kind = AGENTS[name].partition(":")
    found: type[Learner] = getattr(import_module(module, __name__), kind)
    return found
