"""Agents by name: each file has an algorithm, its settings, its presets and how it is built."""

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

A new agent is its file and a line here. One of your own, "my_agents:Mine", is added before
``mimex.config`` is imported."""


def agent_class(name: str) -> type[Learner]:
    """The class of an agent by its name."""
    module, _, kind = AGENTS[name].partition(":")
    found: type[Learner] = getattr(import_module(module, __name__), kind)
    return found
