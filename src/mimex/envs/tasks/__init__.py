"""Placeholder until the part is written."""
