"""Adapters that add a bonus to Gymnasium, Stable-Baselines3, TorchRL, RLlib and rsl_rl."""
