"""An environment whose observations name their step, and a bonus that records what it is asked."""

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

EPISODE_LENGTHS = (6, 3, 1, 9, 2)
"""Steps of the episodes, in turn: longer and shorter than a window, and one step only."""

FIELDS = 3
"""Features of an observation before its action: environment, episode, step."""


class ProbeEnv(gymnasium.Env):
    """An environment whose observation is ``(environment, episode, step, action that led here)``.

    Episodes of odd number are truncated, the others terminate. There is no reward but the bonus.
    """

    def __init__(self, number=0, action_space=None):
        self.action_space = action_space or spaces.Discrete(3)
        self._width = FIELDS + spaces.flatdim(self.action_space)
        self.observation_space = spaces.Box(-np.inf, np.inf, (self._width,), np.float32)
        self.number, self.episode, self.step_number = number, -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.step_number = self.episode + 1, 0
        return self._observation(np.zeros(self._width - FIELDS)), {}

    def step(self, action):
        self.step_number += 1
        over = self.step_number >= EPISODE_LENGTHS[self.episode % len(EPISODE_LENGTHS)]
        truncated = over and self.episode % 2 == 1
        observation = self._observation(spaces.flatten(self.action_space, action))
        return observation, 0.0, over and not truncated, truncated, {}

    def _observation(self, action):
        return np.array([self.number, self.episode, self.step_number, *action], dtype=np.float32)


def signature(episodes, steps, envs=0.0):
    """A number in [1, 2) for each step of each episode, uncorrelated between neighbors."""
    envs = torch.as_tensor(envs).double()
    phase = 12.9898 * steps.double() + 78.233 * episodes.double() + 37.719 * envs
    return 1 + (43758.5453 * torch.sin(phase)) % 1


class NotingBonus:
    """Records every window that it is asked about; its score is a known function of them.

    Args:
        action_dim: Size of the flattened action; None for windows without actions.
        score: The reward of each window; ``signature`` of its newest step when left out.
        length: Steps of a window.
    """

    def __init__(self, action_dim, score=None, length=5):
        self.length, self.action_dim = length, action_dim
        self.windows = []
        self.learned = []  # for each of the windows, whether learn was called
        self._score = score or self._signature

    def reward(self, window):
        return self._note(window, learned=False)

    def learn(self, window, train_fraction=1.0):
        scores = self._note(window, learned=True)
        return scores, {"bonus/mean": float(scores.mean())}

    def _note(self, window, *, learned):
        self.windows.append(window)
        self.learned.append(learned)
        return self._score(window).float()

    @staticmethod
    def _signature(window):
        newest = window.features[:, -1, :FIELDS]
        if newest.shape[1] < FIELDS:  # an encoder made less of it
            return 1 + newest.sum(1).sin().square()
        return signature(newest[:, 1], newest[:, 2], newest[:, 0])

    def state_dict(self):
        return {"kind": "NotingBonus"}

    def load_state_dict(self, state):
        pass
