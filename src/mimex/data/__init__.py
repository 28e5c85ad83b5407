"""Data on its way from the environment to the learner: windows, rollouts, returns."""
