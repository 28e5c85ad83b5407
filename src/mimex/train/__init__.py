"""The training loop, its callbacks and checkpoints."""
