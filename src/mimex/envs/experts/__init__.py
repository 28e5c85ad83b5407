"""Scripted experts, which show that each task can be solved."""

from mimex.envs.experts.base import Aim, Expert, Leg
from mimex.envs.experts.play import EXPERTS, demonstrate, expert_for, run

__all__ = ["run", "demonstrate", "expert_for", "EXPERTS", "Expert", "Leg", "Aim"]
