"""Networks and running statistics: parts that know nothing of reinforcement learning."""
