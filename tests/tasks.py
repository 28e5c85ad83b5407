"""Tiny environments for tests, as a user's own module registers them: gym/tests.tasks:ID."""

from functools import partial

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
NUMBERS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
MOVE = spaces.Box(np.float32(-2), np.float32(3), (1,))


class Walk(gymnasium.Env):
    """A walk on a line: one step is worth what it leads to the right; success beyond 1.

    Args:
        discrete: The action is Discrete, in place of a Box.
        parts: The action is a space of several parts, of which the last moves.
        reports: When steps report success: "always", at the "end", or on "winning".
    """

    def __init__(self, space, discrete=False, render_mode=None, reports="always", parts=None):
        self.observation_space, self.render_mode, self.reports = space, render_mode, reports
        self.action_space = parts or (spaces.Discrete(3, start=-1) if discrete else MOVE)

    def _observe(self):
        vector = np.array([self.place, 0.5], np.float32)
        picture = np.full(IMAGE.shape, 128, np.uint8)
        picture[:, int(np.clip(self.place * 8, -8, 8)) + 12] = 255
        parts = {"eye": picture, "place": vector, "again": vector}
        if isinstance(self.observation_space, spaces.Dict):
            return {name: parts[name] for name in self.observation_space}
        return picture if self.observation_space == IMAGE else vector

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-0.1, 0.1)
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        last = action["move"] if isinstance(action, dict) else action
        moved = 0.1 * float(np.ravel(last)[-1])
        self.place += moved
        done = abs(self.place) > 1
        won = self.place > 1
        reported = {"always": True, "end": done, "winning": won}[self.reports]
        return self._observe(), moved, done, False, {"is_success": won} if reported else {}


KINDS = {
    "Numbers-v0": {"space": NUMBERS},
    "Dict-v0": {"space": spaces.Dict({"place": NUMBERS, "again": NUMBERS}), "discrete": True},
    "DictBox-v0": {"space": spaces.Dict({"place": NUMBERS, "again": NUMBERS})},
    "Picture-v0": {"space": IMAGE, "discrete": True},
    "Both-v0": {"space": spaces.Dict({"eye": IMAGE, "place": NUMBERS})},
    "MultiDiscrete-v0": {"space": NUMBERS, "parts": spaces.MultiDiscrete([2, 3], start=[0, -1])},
    "MultiBinary-v0": {"space": NUMBERS, "parts": spaces.MultiBinary(2)},
    "DictAction-v0": {"space": NUMBERS, "parts": spaces.Dict({"move": MOVE})},
    "NoZero-v0": {"space": NUMBERS, "parts": spaces.Discrete(2, start=1)},
    "End-v0": {"space": NUMBERS, "discrete": True, "reports": "end"},
    "Winning-v0": {"space": NUMBERS, "discrete": True, "reports": "winning"},
    "Endless-v0": {"space": NUMBERS},
}
for name, settings in KINDS.items():
    limit = None if name.startswith("Endless") else 15
    gymnasium.register(name, Walk, max_episode_steps=limit, kwargs=settings)


def vector_only(num_envs, mode=None, **settings):
    """Vector environments that report this way of resetting, or none."""
    one = partial(Walk, NUMBERS, **settings)
    env = SyncVectorEnv([one] * num_envs, autoreset_mode=mode or AutoresetMode.NEXT_STEP)
    env.metadata = {} if mode is None else {"autoreset_mode": mode}
    return env


gymnasium.register(
    "Swing-v0",  # of the suite, drawn, and short
    "mimex.envs.dmc:DMC",
    max_episode_steps=15,
    kwargs={"task": "cartpole_swingup"},
)

MODES = {"NextStep-v0": AutoresetMode.NEXT_STEP, "SameStep-v0": AutoresetMode.SAME_STEP}
for name, mode in {**MODES, "Disabled-v0": AutoresetMode.DISABLED, "Silent-v0": None}.items():
    gymnasium.register(name, vector_entry_point=vector_only, kwargs={"mode": mode})
