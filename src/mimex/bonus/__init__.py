"""Intrinsic rewards: one protocol, one frame of masked prediction, four methods in it."""
