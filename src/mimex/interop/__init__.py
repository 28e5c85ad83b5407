"""The bonus in agents that people already have: Gymnasium, Stable-Baselines3, TorchRL, RLlib."""
