"""Training: the loops, what they save and where."""
