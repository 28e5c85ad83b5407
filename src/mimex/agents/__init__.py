"""Agents: one algorithm a file."""
