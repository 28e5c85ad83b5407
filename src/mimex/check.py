"""``check_bonus``: checks that a bonus is computed from the right steps and reaches the update.

The set-up runs for a short time with known random values in place of the extrinsic rewards and the
scores of the bonus, and with short episodes. Both rewards of every transition are then known, and
are compared with the rewards that the agent trains on.
"""

from __future__ import annotations

import copy
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

from mimex.bonus import scale as scale_module
from mimex.bonus.base import EpisodicReward
from mimex.bonus.mimex import MIMEx
from mimex.bonus.scale import BonusScale, Rewards
from mimex.interop.adapter import BonusAdapter
from mimex.interop.flatten import stack
from mimex.types import Metrics, Window

Array = np.ndarray[Any, Any]
Key = tuple[int, int, int]  # environment, episode, step
Status = Literal["pass", "fail", "skip"]
MakeEnv = Callable[[], gymnasium.Env[Any, Any]]

EPISODE_LENGTHS = (6, 3, 1, 25, 2)
"""Maximum lengths of episodes, in turn: shorter and longer than a window. Every second episode is
truncated."""

LEARN_EVERY = 512
"""Default of the wrappers: in as many transitions the bonus must have been trained."""

MIN_ROWS = 30
"""Transitions that a regression needs."""


class Check(NamedTuple):
    """One row of the table."""

    name: str
    status: Status
    finding: str
    remedy: str = ""


class _Skip(Exception):  # noqa: N818 - no error
    """A check cannot be made: the reason and, if any, the remedy."""


@dataclass
class _Episode:
    observations: list[int] = field(default_factory=list)  # hashes of what the bonus sees
    rewards: list[float] = field(default_factory=list)  # extrinsic
    end: str = ""  # "terminated" or "truncated"


class _Trained(NamedTuple):
    """The data that the agent trains on: M transitions in any order."""

    keys: list[Key | None]  # None if the observation is not one of the environments'
    rewards: Array  # (M,)
    advantages: Array | None = None  # (M,)
    values: Array | None = None  # (M,)
    bootstrapped: bool = False  # rewards of truncated transitions contain a value


def check_bonus(
    target: Any, *, make_env: MakeEnv | None = None, bonus: Any = None, verbose: bool = True
) -> list[Check]:
    """Runs a set-up for a short time and checks that its bonus is computed and used correctly.

    ``check_bonus(model)`` for Stable-Baselines3, ``check_bonus(env)`` for a wrapped environment,
    ``check_bonus(train)`` for your own training loop. As with Gymnasium's ``check_env``, make a new
    set-up for the training that follows: this one has been stepped and trained.

    Args:
        target: One of

            - a model of Stable-Baselines3 (it learns for two rollouts, or 250 steps off-policy);
            - an environment or vector environment, wrapped with a bonus (it is stepped with random
              actions);
            - a function ``train(make_env, bonus)`` that makes environments by ``make_env()``, uses
              ``bonus`` as you do, takes at least 600 steps, and returns one of the above or
              ``{"observations": ..., "rewards": ..., "advantages": ..., "values": ...}`` of the
              last rollout or of a sampled batch: rewards with the bonus in them, advantages before
              they are normalized. The last two are optional.
        make_env: For a function: makes your environment; CartPole if None.
        bonus: For a function: your bonus; MIMEx if None.
        verbose: Whether to print the table.

    Returns:
        The rows of the table. ``fail`` means that training would go wrong, ``skip`` that the check
        could not be made.
    """
    with ExitStack() as patches:
        run = _Run(patches)
        checks = [run.start(target, make_env, bonus)]
    for name, check in _CHECKS.items():
        try:
            checks.append(Check(name, *check(run)))
        except _Skip as reason:
            checks.append(Check(name, "skip", *map(str, reason.args)))
        except Exception as error:  # in the user's classes: the other checks continue
            checks.append(Check(name, "skip", _describe(error)))
    if verbose:
        width = max(len(row.name) for row in checks)
        for row in checks:
            print(f"{row.status}  {row.name:{width}}  {row.finding}")
            if row.remedy and row.status != "pass":
                print(f"{'':{width + 8}}-> {row.remedy}")
        total = Counter(row.status for row in checks)
        print(f"{total['pass']} passed, {total['fail']} failed, {total['skip']} skipped")
    return checks


class _Run:
    """A set-up with replaced rewards, episodes and scores, and a record of its steps."""

    def __init__(self, patches: ExitStack) -> None:
        self.patches, self.rng = patches, np.random.default_rng(0)
        self.episodes: dict[tuple[int, int], _Episode] = {}
        self.order: list[list[Key]] = []  # transitions of each environment
        self.numbers: dict[int, int] = {}  # environments by id
        self.columns: list[int] = []  # numbers of the environments of a vector environment
        self.where: dict[int, Key | None] = {}  # by hash of an observation; None if not unique
        self.flatten: Callable[[Any], Any] | None = None  # an observation as the bonus sees it
        self.example: Any = None  # an observation, for its keys and sizes
        self.stride: int | None = None
        self.scores: dict[int, float] = {}  # by hash of a window's newest step
        self.windows: Counter[str] = Counter()  # "right", "crossing" or "partial"
        self.newest: set[Key] = set()  # steps at which windows end
        self.calls: Counter[str] = Counter()  # of "learn" and "reward"
        self.kept: list[Window] = []
        self.slopes: list[float] = []  # intrinsic reward / raw bonus, of every BonusScale
        self.bonuses: list[Any] = []
        self.adapters: list[BonusAdapter] = []
        self.model: Any = None
        self.trained: _Trained | None = None

    @property
    def played(self) -> int:
        return sum(map(len, self.order))

    def start(self, target: Any, make_env: MakeEnv | None, bonus: Any) -> Check:
        """Runs the set-up; an error in it becomes the finding."""
        name = "the set-up runs"
        try:
            self.patch(BonusScale, combine=self.recording(BonusScale.combine))
            self.patch(scale_module, WARMUP=0)  # a short run would have no bonus
            if callable(target) and not isinstance(target, gymnasium.Env | VectorEnv):
                target = self.call(target, make_env, bonus)
            self.trained = self.observe(target)
        except Exception as error:
            return Check(name, "fail", _describe(error), "the rows below are of what ran before it")
        parts = [part for part in self.trained[1:4] if part is not None]
        bad = sum(int((~np.isfinite(part)).sum()) for part in parts)
        finding = f"{self.played} transitions of {len(self.order)} environments"
        if bad:
            finding += f"; {bad} rewards, advantages or values are NaN or infinite"
        return Check(name, "fail" if bad else "pass", finding, "look at observations and values")

    def call(self, train: Callable[..., Any], make_env: MakeEnv | None, bonus: Any) -> Any:
        """Calls the user's function with recorded environments and a recorded bonus."""
        make_env = make_env or partial(gymnasium.make, "CartPole-v1")

        def make() -> gymnasium.Env[Any, Any]:
            env = make_env()
            self.attach(env)
            return env

        self.bonuses = [bonus or MIMEx(normalize=True)]
        self.replace(self.bonuses[0])
        return train(make, self.bonuses[0])

    def observe(self, target: Any) -> _Trained:
        """Runs a model or environments, and reads the data that the agent trains on."""
        if isinstance(target, Mapping):
            return self.returned(target)
        if hasattr(target, "get_env") and hasattr(target, "learn"):
            self.model, played = target, self.played
            buffers = [getattr(target, f"{kind}_buffer", None) for kind in ("rollout", "replay")]
            self.prepare(target.get_env(), [b for b in buffers if b is not None])
            return self.on_policy(target, played) if buffers[0] else self.off_policy(target, played)
        if not isinstance(target, gymnasium.Env | VectorEnv):
            raise TypeError(
                f"{type(target).__name__} cannot be checked; expected a model, an environment, or "
                "a function train(make_env, bonus) that returns one of these or a dict."
            )
        self.prepare(target, [])
        if isinstance(target, gymnasium.Env):
            target = SyncVectorEnv([lambda: target], autoreset_mode=AutoresetMode.SAME_STEP)
        return self.drive(target)

    def prepare(self, env: Any, holders: list[Any]) -> None:
        """Finds the bonus in wrappers and buffers, and replaces it, rewards and episodes."""
        wrappers = list(_chain(env))
        inner = list(getattr(wrappers[-1], "envs", ())) or [env]
        if inner == [env] and not isinstance(env, gymnasium.Env):
            raise TypeError(
                f"{type(wrappers[-1]).__name__} runs its environments in other processes, where "
                "they cannot be checked; use SyncVectorEnv (Gymnasium) or DummyVecEnv (SB3)."
            )
        for holder in [*wrappers, *holders, *(wrapper for sub in inner for wrapper in _chain(sub))]:
            for found in _held(holder):
                if isinstance(found, BonusAdapter):
                    self.adapters.append(found)
                bonus = getattr(found, "bonus", found)
                if not any(bonus is known for known in self.bonuses):
                    self.bonuses.append(bonus)
                    self.replace(bonus)
            for name in {"norm_obs", "norm_reward"} & set(vars(holder)):  # of a VecNormalize
                self.patch(holder, **{name: False})
        if self.adapters:
            self.stride = self.adapters[0].stride
            single = getattr(env, "single_observation_space", env.observation_space)
            actions = getattr(env, "single_action_space", env.action_space)
            flatten, _ = self.adapters[0].flatteners(single, actions)
            self.flatten = lambda observation: flatten(stack([observation]))[0]
        for sub in inner:
            known = [self.numbers[id(w)] for w in _chain(sub) if id(w) in self.numbers]
            below = next((w.env for w in reversed([*_chain(sub)]) if _held(w)), sub)
            self.columns.append(known[0] if known else self.attach(below))

    def on_policy(self, model: Any, played: int) -> _Trained:
        """The rollout buffer of a model of Stable-Baselines3."""
        if not played:
            model.learn(2 * model.n_steps * model.n_envs)
        buffer = model.rollout_buffer
        steps, envs = buffer.rewards.shape
        by_env = [self.order[n][-steps:] for n in self.columns]
        # When minibatches are drawn, the buffer flattens all but the rewards by environment.
        rewards, *rest = (
            (part if part.shape == (steps, envs) else part.reshape(envs, steps).T).reshape(-1)
            for part in (buffer.rewards, buffer.advantages, buffer.values)
        )
        keys = [key for row in zip(*by_env, strict=True) for key in row]
        return _Trained(keys, rewards, rest[0], rest[1], bootstrapped=True)

    def off_policy(self, model: Any, played: int) -> _Trained:
        """A sample of the replay buffer of a model of Stable-Baselines3."""
        if not played:
            self.patch(model, learning_starts=min(model.learning_starts, 100))
            model.learn(250)
        samples = model.replay_buffer.sample(512, env=model.get_vec_normalize_env())
        return _Trained(self.find(samples.observations), _array(samples.rewards).reshape(-1))

    def drive(self, env: VectorEnv[Any, Any, Any]) -> _Trained:
        """Steps environments with random actions."""
        every = [getattr(adapter, "learn_every", None) or 0 for adapter in self.adapters]
        steps = min(max(300, *every, 0) // env.num_envs + 100, 5000)
        mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        before = [len(order) for order in self.order]
        rewards: list[list[float]] = [[] for _ in self.columns]
        env.action_space.seed(0)
        env.reset()
        over = np.zeros(env.num_envs, bool)
        for _ in range(steps):
            if mode is AutoresetMode.DISABLED and over.any():
                env.reset(options={"reset_mask": over})
            resets = over if mode is AutoresetMode.NEXT_STEP else np.zeros_like(over)
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            over = np.asarray(terminated) | np.asarray(truncated)
            for n in np.flatnonzero(~resets).tolist():
                rewards[n].append(float(reward[n]))
        keys = [self.order[n][before[n] :] for n in self.columns]
        if list(map(len, keys)) != list(map(len, rewards)):
            raise RuntimeError("one step of the wrapped environment is not one step of the inner.")
        return _Trained([*chain.from_iterable(keys)], np.concatenate(rewards))

    def returned(self, found: Mapping[str, Any]) -> _Trained:
        """The dict that the user's function returned."""
        if not {"observations", "rewards"} <= set(found):
            raise ValueError(f"train returned {sorted(found)}; expected 'observations', 'rewards'.")
        keys = self.find(found["observations"])
        advantages, values = (
            _array(found[name]).reshape(len(keys)) if name in found else None
            for name in ("advantages", "values")
        )
        return _Trained(keys, _array(found["rewards"]).reshape(len(keys)), advantages, values)

    def find(self, observations: Any) -> list[Key | None]:
        """The transitions that start from these observations."""
        if self.example is None:
            raise RuntimeError("no environment of make_env() was stepped in this process.")
        return [self.where.get(_hash(row)) for row in _rows(observations, self.example)]

    def patch(self, owner: Any, **attributes: Any) -> None:
        """Sets attributes until the run is over."""
        for name, value in attributes.items():
            if name in vars(owner):
                self.patches.callback(setattr, owner, name, vars(owner)[name])
            else:
                self.patches.callback(delattr, owner, name)
            setattr(owner, name, value)

    def attach(self, env: gymnasium.Env[Any, Any]) -> int:
        """Replaces the rewards and episodes of an environment, and records its steps."""
        number = self.numbers[id(env)] = len(self.order)
        self.order.append([])
        step, reset, space = env.step, env.reset, env.observation_space
        self.flatten = self.flatten or (lambda observation: spaces.flatten(space, observation))
        count = -1  # index of the newest episode

        def new_reset(**kwargs: Any) -> Any:
            nonlocal count
            observation, info = reset(**kwargs)
            observation = self.unique(space, observation)
            count += 1
            self.episodes[number, count] = _Episode()
            self.see((number, count, 0), observation)
            return observation, info

        def new_step(action: Any) -> Any:
            observation, _, terminated, truncated, info = step(action)
            observation = self.unique(space, observation)
            episode = self.episodes[number, count]
            self.order[number].append((number, count, len(episode.rewards)))
            # Negative, because BonusScale reduces beta after positive rewards.
            episode.rewards.append(-1.0 - float(self.rng.uniform()))
            self.see((number, count, len(episode.rewards)), observation)
            if len(episode.rewards) >= EPISODE_LENGTHS[count % len(EPISODE_LENGTHS)]:
                terminated, truncated = count % 2 == 0, count % 2 == 1
            episode.end = "terminated" if terminated else "truncated" if truncated else ""
            return observation, episode.rewards[-1], terminated, truncated, info

        self.patch(env, step=new_step, reset=new_reset)
        return number

    def unique(self, space: spaces.Space[Any], observation: Any) -> Any:
        """The observation, or a similar one if it was seen before: steps are known by theirs."""
        if self.where.keys().isdisjoint(self.hashes(observation)):
            return observation
        return _similar(space, observation, self.rng)

    def hashes(self, observation: Any) -> tuple[int, int]:
        """The hashes of what the bonus sees of an observation, and of all of it."""
        seen = 0
        with suppress(ValueError, TypeError, RuntimeError):  # an encoder may want it transposed
            seen = _hash(_array(self.flatten(observation))) if self.flatten else 0
        return seen, _hash(_rows(observation, observation)[0])

    def see(self, key: Key, observation: Any) -> None:
        """Records the hashes of an observation and of what the bonus sees of it."""
        self.example, (seen, whole) = observation, self.hashes(observation)
        self.episodes[key[:2]].observations.append(seen)
        for found in {seen, whole}:
            self.where[found] = None if found in self.where else key

    def require_unique(self) -> None:
        """Skips a check if most observations repeat: a window's step is then not known."""
        found = [one for e in self.episodes.values() for one in e.observations if one]
        if 2 * sum(self.where.get(one) is None for one in found) > len(found):
            raise _Skip(
                "most observations repeat, and discrete ones cannot be made different",
                "check the same set-up on an environment with continuous observations, such as "
                "CartPole-v1",
            )

    def replace(self, bonus: Any) -> None:
        """Makes a bonus score at random, and records its windows."""

        def learn(window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
            scores = self.record(window, "learn")
            return scores, {"bonus/mean": float(scores.mean())}

        def score(window: Window, *args: Any) -> Tensor:
            return self.record(window, "reward")

        self.patch(bonus, reward=score, learn=learn)
        if isinstance(bonus, EpisodicReward):
            self.patch(bonus, follow=score)

    def recording(self, combine: Callable[..., Rewards]) -> Callable[..., Rewards]:
        """``BonusScale.combine``, which records the ratio of reward to raw bonus."""

        def new_combine(scale: BonusScale, extrinsic: Any, bonus: Any, **kwargs: Any) -> Rewards:
            rewards, raw = combine(scale, extrinsic, bonus, **kwargs), torch.as_tensor(bonus)
            slopes = (rewards.intrinsic - rewards.survival) / raw
            self.slopes += slopes[raw != 0].flatten().tolist()
            return rewards

        return new_combine

    def record(self, window: Window, call: str) -> Tensor:
        """Records the windows of a call, and returns their random scores."""
        features, valid = _array(window.features), _array(window.valid) > 0
        features = features.reshape(*features.shape[:2], -1)
        newest = [_hash(row[-1]) for row in features]
        for b, found in enumerate(newest):
            key = self.where.get(found)
            self.scores.setdefault(found, float(np.float32(1 + self.rng.uniform())))
            if key is not None and valid[b].any():
                self.newest.add(key)
                steps = [_hash(row) for row in features[b][valid[b]]]
                self.windows[self.compare(key, steps, valid[b])] += 1
        self.calls[call] += 1
        if sum(map(len, self.kept)) < 256:
            self.kept.append(window.clone())
        return torch.tensor([self.scores[found] for found in newest])

    def compare(self, key: Key, hashes: list[int], valid: Array) -> str:
        """Compares a window with the steps of its episode."""
        found = [self.where.get(one) for one in hashes]
        if any(other is not None and other[:2] != key[:2] for other in found):
            return "crossing"
        if self.stride is None and len(found) > 1 and found[-2] is not None:
            self.stride = max(key[2] - found[-2][2], 1)
        if self.stride is None:
            return "right"  # a single step
        steps = list(range(key[2], -1, -self.stride))[: len(valid)][::-1]
        observations = self.episodes[key[:2]].observations
        complete = hashes == [observations[s] for s in steps] and valid[-len(steps) :].all()
        return "right" if complete else "partial"

    # Results for the checks.

    def require_scores(self, *, known: bool = True) -> None:
        if not self.calls:
            raise _Skip("the bonus was not asked for any score")
        if known:
            self.require_unique()
        if known and not self.newest:
            raise _Skip("the bonus sees normalized or encoded observations, which are not known")

    def ends_seen(self) -> tuple[bool, bool]:
        """Whether windows end at first observations, and whether at final ones."""
        lengths = {key: len(e.rewards) for key, e in self.episodes.items() if e.end}
        final = any(step == lengths.get((n, e)) for n, e, step in self.newest)
        return any(step == 0 for *_, step in self.newest), final

    def ending(self, key: Key) -> str:
        """How an episode ended with a transition; empty if it did not."""
        episode = self.episodes[key[:2]]
        return episode.end if key[2] == len(episode.rewards) - 1 else ""

    def score(self, key: Key, shift: int) -> float:
        """The score of the window that ends ``shift`` steps after a transition's observation."""
        observations, step = self.episodes[key[:2]].observations, key[2] + shift
        found = observations[step] if 0 <= step < len(observations) else 0
        return self.scores.get(found, np.nan) if self.where.get(found) else np.nan

    @cache  # noqa: B019 - lives as long as the run
    def fit(self) -> tuple[float, float, int, float, float]:
        """Regresses rewards on the extrinsic reward, and the residual on the bonus.

        Returns:
            The slope of the extrinsic reward and the rms of the residual. For the step near the
            transition whose bonus explains the residual best: its distance, the slope of its bonus,
            and the correlation.
        """
        trained = self.trained
        if trained is None:
            raise _Skip("the set-up did not run to its end")
        rows = [
            (key, float(reward))
            for key, reward in zip(trained.keys, trained.rewards, strict=True)
            if key is not None and key[2] < len(self.episodes[key[:2]].rewards)
            if not (trained.bootstrapped and self.ending(key) == "truncated")
        ]
        if len(rows) < MIN_ROWS:
            self.require_unique()
            finding = f"{len(rows)} of {len(trained.keys)} observations are the environments' own"
            raise _Skip(finding, "return observations as make_env()'s environments gave them")
        rewards = np.array([reward for _, reward in rows])
        task = np.array([self.episodes[key[:2]].rewards[key[2]] for key, _ in rows])
        factor, left = _regress(rewards, task)
        rms, best = float(np.sqrt(np.square(left).mean())), (1, 0.0, 0.0)
        for shift in (-1, 0, 1, 2):
            scores = np.array([self.score(key, shift) for key, _ in rows])
            some = np.isfinite(scores)
            if some.sum() >= MIN_ROWS:
                slope, rest = _regress(left[some], scores[some])
                total = max(np.square(left[some]).sum(), 1e-9)
                explained = 1 - float(np.square(rest).sum() / total)
                if explained > best[2]:
                    best = shift, slope, explained
        return factor, rms, best[0], best[1], best[2] ** 0.5

    def recursion(self) -> tuple[float, float | None]:
        """Fits ``A + V - r = gamma V' + gamma lambda A'`` to transitions within episodes.

        Returns:
            The rms error divided by the mean bonus, and the fraction of episode ends at which the
            left side is not 0 (terminated) or is that of the next episode (truncated); None if too
            few episodes ended.
        """
        trained = self.trained
        if trained is None or trained.advantages is None or trained.values is None:
            raise _Skip("there are no advantages", "return 'advantages' and 'values'")
        rows = {key: i for i, key in enumerate(trained.keys) if key is not None}
        found = []
        for (n, e, step), i in rows.items():
            end = self.ending((n, e, step))
            after = rows.get((n, e + 1, 0) if end else (n, e, step + 1))
            if after is not None:
                found.append((i, after, end, self.episodes[n, e].rewards[step]))
        if len(found) < MIN_ROWS:
            self.require_unique()
            raise _Skip("too few transitions follow one another")
        here, then, kinds, task = (np.array(column) for column in zip(*found, strict=True))
        ends, terminated = kinds != "", kinds == "terminated"
        left = (trained.advantages + trained.values - trained.rewards)[here]
        right = np.stack([trained.values[then], trained.advantages[then]], axis=1)
        error = np.abs(left - right @ np.linalg.lstsq(right[~ends], left[~ends], rcond=None)[0])
        bonus = max(float(np.abs(trained.rewards[here] - task).mean()), 1e-3)
        wrong = np.where(terminated, np.abs(left) > 0.1 * bonus, error < 0.1 * bonus)[ends]
        fraction = float(wrong.mean()) if len(wrong) >= 5 else None
        return float(np.sqrt(np.square(error[~ends]).mean())) / bonus, fraction


Verdict = tuple[Status, str, str]


def _judge(holds: bool, finding: str, remedy: str) -> Verdict:
    return "pass" if holds else "fail", finding, remedy


def _check_asked(run: _Run) -> Verdict:
    if run.trained is None and not run.calls:
        raise _Skip("the set-up did not run to its end")
    finding = f"{run.calls.total()} calls" if run.calls else "neither a wrapper nor a buffer asks"
    remedy = "wrap the environment with mimex.wrap or wrap_vector, or call bonus.learn(window)"
    if run.model is not None:
        remedy = "PPO('MlpPolicy', **with_bonus(env, bonus)); off_policy=True for SAC, TD3 or DQN"
        if run.bonuses and not run.calls:
            finding = "env.rollout_bonus() is not used by a BonusRolloutBuffer of the model"
        replay = getattr(run.model, "replay_buffer", None)
        if replay is not None and not isinstance(getattr(replay, "bonus", None), BonusAdapter):
            kind = f"the buffer is a {type(replay).__name__}"
            return "fail", f"{kind}, whose bonus is outdated when steps are sampled", remedy
    return _judge(bool(run.calls), finding, remedy)


def _check_windows(run: _Run) -> Verdict:
    run.require_scores()
    crossing, partial_ = run.windows["crossing"], run.windows["partial"]
    return _judge(
        not crossing + partial_,
        f"of {run.windows.total()} windows {crossing} reach into another episode or environment, "
        f"{partial_} lack steps or have them out of order",
        "keep one WindowTracker or RolloutWindows for the whole run, pass it the starts of "
        "episodes, and use the final observations of info['final_obs']",
    )


def _check_ends(run: _Run) -> Verdict:
    run.require_scores()
    first, final = run.ends_seen()
    finding = f"windows end at the {'next ' if final else ''}observation"
    if first == final:
        finding = "resets are scored as well" if first else "no final observation is scored"
    remedy = "score info['final_obs'] (SB3: 'terminal_observation') at the end of an episode, and "
    return _judge(first != final, finding, f"{remedy}no step that only resets")


def _check_learns(run: _Run) -> Verdict:
    learned = run.calls["learn"]
    finding = f"{learned} calls of learn in {run.played} transitions"
    every = [getattr(adapter, "learn_every", LEARN_EVERY) for adapter in run.adapters]
    if not learned and None not in every and run.played < max([LEARN_EVERY, *every]):
        raise _Skip(finding, "take more steps in train(make_env, bonus)")
    return _judge(
        bool(learned),
        finding,
        "call bonus.learn(window), which scores and trains; a wrapper trains every learn_every "
        "transitions: make it once, not in every rollout, and without learn_every=None",
    )


def _check_task(run: _Run) -> Verdict:
    factor = run.fit()[0]
    if factor > 0.1 and min(abs(factor - 1), abs(factor - 2)) > 0.1:
        raise _Skip(f"the reward has {factor:.2f} times the task's: it is rescaled or normalized")
    return _judge(
        abs(factor - 1) <= 0.1,
        f"the reward has {factor:.2f} times the task's",
        "train on BonusScale.combine(extrinsic, bonus).total, which is the sum of both",
    )


def _check_bonus(run: _Run) -> Verdict:
    task, rms, shift, factor, correlation = run.fit()
    remedy = "add the intrinsic reward once; BonusScale has multiplied it by beta already"
    if not run.calls or rms < 1e-6:
        zero = " (beta is 0)" if run.slopes and not any(run.slopes) else ""
        return "fail", f"the reward is the task's alone{zero}", remedy
    run.require_scores()
    first, final = run.ends_seen()
    right = (0, 1) if first == final else (1,) if final else (0,)
    if correlation < 0.5 or shift not in right:
        finding = (
            f"the reward has the bonus of another step (correlation {correlation:.2f}, {shift:+d})"
        )
        return "fail", finding, "keep rewards and windows in the same order"
    if not run.slopes:
        return _judge(factor > 0, f"a bonus of 1 adds {factor:.3g} to the reward", remedy)
    ratio = factor / float(np.median(run.slopes))
    holds = any(0.75 < value < 1.33 for value in (ratio, ratio / max(task, 0.1)))
    return _judge(holds, f"the reward has {ratio:.2f} times the scaled bonus", remedy)


def _check_advantages(run: _Run) -> Verdict:
    error, _ = run.recursion()
    return _judge(
        error < 0.1,
        f"A = r + gamma (V' + lambda A') - V holds up to {error:.1g} times the bonus",
        "add the bonus before advantages are computed (SB3's rollout callback is too late), and "
        "return advantages before they are normalized",
    )


def _check_episodes(run: _Run) -> Verdict:
    error, fraction = run.recursion()
    if error >= 0.1 or fraction is None:
        raise _Skip(
            "few episodes ended" if fraction is None else "advantages are not of these rewards"
        )
    return _judge(
        fraction < 0.3,
        f"{fraction:.0%} of the ends have V' or A' of the next episode in their advantage",
        "multiply V' and A' by 1 - done of the same step",
    )


def _check_falls(run: _Run) -> Verdict:
    run.require_scores(known=False)
    windows = Window.cat(run.kept)
    windows = windows[windows.valid[:, -2:].all(1)][:64]
    bonus, rounds = copy.deepcopy(run.bonuses[0]), 0

    def mean(*, starts: bool = False) -> float:
        if isinstance(bonus, EpisodicReward):
            return float(bonus.follow(windows, torch.full((len(windows),), starts)).mean())
        return float(bonus.reward(windows).mean())

    first = last = mean(starts=True)
    while rounds < 100 and not last < 0.8 * first:
        rounds += 1
        bonus.learn(windows)
        last = mean()
    finding = f"from {first:.3g} to {last:.3g} in {rounds} steps on {len(windows)} windows"
    return _judge(last < 0.8 * first, finding, "is it trained, with a learning rate above 0?")


_CHECKS: dict[str, Callable[[_Run], Verdict]] = {
    "the bonus is asked for scores": _check_asked,
    "windows hold the newest steps of one episode": _check_windows,
    "final observations are scored, resets are not": _check_ends,
    "the bonus is trained": _check_learns,
    "the task's reward is in the reward once": _check_task,
    "the transition's bonus is in the reward once": _check_bonus,
    "advantages are computed from these rewards": _check_advantages,
    "advantages stop at the end of an episode": _check_episodes,
    "the bonus falls on windows that it is trained on": _check_falls,
}


def _chain(env: Any) -> Iterator[Any]:
    """An environment and all that it wraps, outermost first."""
    while env is not None:
        yield env
        env = vars(env).get("venv", vars(env).get("env"))


def _held(holder: Any) -> list[Any]:
    """The bonuses among the attributes of a wrapper or a buffer."""
    return [
        value
        for value in list(vars(holder).values())
        if isinstance(value, BonusAdapter)
        or all(callable(getattr(value, name, None)) for name in ("reward", "learn"))
    ]


def _array(values: Any) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.float32)


def _rows(batch: Any, example: Any) -> Array:
    """A batch of observations that are like an example, as vectors ``(M, D)``."""
    if isinstance(example, Mapping):
        return np.concatenate([_rows(batch[key], example[key]) for key in sorted(example)], axis=1)
    return _array(batch).reshape(-1, np.size(example))


def _similar(space: spaces.Space[Any], observation: Any, rng: np.random.Generator) -> Any:
    """An observation with small random changes, within the space; discrete parts are kept."""
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return {name: _similar(part, observation[name], rng) for name, part in parts}
    if not isinstance(space, spaces.Box):
        return observation
    values = np.asarray(observation)
    if np.issubdtype(values.dtype, np.floating):
        low, high = np.maximum(space.low, values - 1), np.minimum(space.high, values + 1)
        return (values + 0.01 * (rng.uniform(low, high) - values)).astype(values.dtype)
    if values.dtype == np.uint8:  # images: the lowest bit
        return values ^ rng.integers(0, 2, values.shape, np.uint8)
    return observation


def _hash(row: Array) -> int:
    return hash((row + 0.0).tobytes())  # -0.0 is 0.0


def _regress(values: Array, on: Array) -> tuple[float, Array]:
    """Slope and residuals of a linear regression."""
    columns = np.stack([on, np.ones_like(on)], axis=1)
    line = np.linalg.lstsq(columns, values, rcond=None)[0]
    return float(line[0]), values - columns @ line


def _describe(error: Exception) -> str:
    """An error and the line of code that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
