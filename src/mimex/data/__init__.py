"""Data between environments and learners: windows, rollouts and replay."""
