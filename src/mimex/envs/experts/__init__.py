"""Scripted solutions of the tasks: proof that each can be solved, and demonstrations."""

from mimex.envs.experts.base import Aim, Expert, Leg
from mimex.envs.experts.play import EXPERTS, demonstrate, expert_for, run

__all__ = ["run", "demonstrate", "expert_for", "EXPERTS", "Expert", "Leg", "Aim"]
