"""Networks, running statistics and parallel execution; nothing specific to RL."""
