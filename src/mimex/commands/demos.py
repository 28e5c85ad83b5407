"""`mimex demos`: demonstrations of a task as a Minari dataset, by its expert or by a policy.

Episode k begins as ``gymnasium.make(...).reset(seed=SEED + k)`` does, so that its actions can be
replayed in the environment that the dataset recovers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from rich.console import Console

from mimex import __version__
from mimex.commands.build import Which, load_agent, make_env
from mimex.commands.play import Untrained
from mimex.commands.pretrained import changed_world, load_pretrained
from mimex.config import TrainConfig, preset
from mimex.contracts import Policy
from mimex.envs.catalog import NAMES
from mimex.envs.nearest import choose
from mimex.files import ASIDE, sync
from mimex.nn.parallel import use_workers
from mimex.track.display import Display

PARALLEL_ENVS, PARALLEL_IMAGE_ENVS = 64, 16
"""Episodes collected at once; fewer of images, which fill memory."""

GIVE_UP = 10
"""With --only-success, episodes to try for each that is asked for."""


@dataclass(frozen=True)
class DemosConfig:
    """Record demonstrations of a PixMC-Sparse task as a Minari dataset.

    The scripted expert acts, unless --policy or --pretrained names a policy. The dataset goes to
    Minari's folder (MINARI_DATASETS_PATH, or ~/.minari/datasets); minari.load_dataset reads it.
    """

    task: tyro.conf.Positional[str]
    """The task, for example FrankaPick."""
    episodes: int = 100
    """Number of episodes."""
    policy: Path | None = None
    """A run folder whose policy acts, without noise."""
    pretrained: bool = False
    """The task's shipped policy acts."""
    checkpoint: Which = "latest"
    """Which of the run's checkpoints."""
    reward: str | None = None
    """dense, sparse or sparser; by default the policy's own, and for the expert sparse."""
    observation: str | None = None
    """What the expert's episodes record: oracle (by default), robot or pixels. A policy's episodes
    record what it observes."""
    only_success: bool = False
    """Record successful episodes only."""
    seed: int = 0
    """Seed of the first episode; each further one has the next."""
    name: str | None = None
    """The dataset's id; by default mimex/TASK/expert-v0, or policy-v0 or pretrained-v0."""


@dataclass(frozen=True)
class Episode:
    """An episode of T steps.

    Attributes:
        seed: The seed that it began with.
        observations: ``(T + 1, ...)``, or a dict of such.
        actions: ``(T, A)``.
        rewards: ``(T,)``.
        terminations: ``(T,)``.
        truncations: ``(T,)``.
        successes: ``(T + 1,)``, whether the task counted as solved.
    """

    seed: int
    observations: Any
    actions: NDArray[Any]
    rewards: NDArray[Any]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    successes: NDArray[np.bool_]

    @property
    def success(self) -> bool:
        """Whether the episode ended as a success."""
        return bool(self.successes[-1])


def run(arguments: Sequence[str]) -> int:
    """Reads the command line, records and writes."""
    config = tyro.cli(DemosConfig, args=arguments, prog="mimex demos")
    if config.episodes < 1:
        raise ValueError(f"--episodes is {config.episodes}, but must be at least 1")
    if config.seed < 0:
        raise ValueError(f"--seed is {config.seed}, but must be 0 or more")
    import h5py  # noqa: F401 (Minari's default format)
    from minari import __version__ as minari_version
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage import get_dataset_path

    choose("the task", config.task, NAMES)
    use_workers(1)
    played, agent, actor = _chosen(config)
    name = config.name or f"mimex/{config.task}/{actor}-v0"
    namespace = parse_dataset_id(name)[0]
    final = get_dataset_path(name)
    if final.exists():
        raise ValueError(
            f"the dataset {name} is there already ({final}): choose another --name, or remove it "
            f"with `minari delete {name}`"
        )
    most = PARALLEL_IMAGE_ENVS if played.observation == "pixels" else PARALLEL_ENVS
    env = make_env(played, min(config.episodes, most))
    aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=get_dataset_path()))
    try:
        policy = agent or Untrained("expert", played.task, env, config.seed)
        (aside / "dataset").mkdir()
        storage = MinariStorage.new(
            aside / "dataset" / "data",
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
            env_spec=_spec(played),
        )
        storage.update_metadata(
            {
                "dataset_id": name,
                "minari_version": minari_version,
                "algorithm_name": actor,
                "author": {"mimex"},
                "description": f"{played.task}, reward {played.reward}, by the {actor} of mimex.",
                "requirements": [f"mimex[envs]=={__version__}"],
            }
        )
        successes = _record(config, env, policy, storage)
        for file in (aside / "dataset" / "data").iterdir():
            sync(file)
        if namespace is not None and namespace not in list_local_namespaces():
            create_namespace(namespace)
        (aside / "dataset").rename(final)  # whole or not at all
    finally:
        env.close()
        shutil.rmtree(aside)
    print(f"{name}: {config.episodes} episodes, {successes} of them successes, in {final}")
    print(f'minari.load_dataset("{name}")')
    return 0


def _chosen(config: DemosConfig) -> tuple[TrainConfig, Policy | None, str]:
    """The settings of the environments, what acts (None for the expert), and its name."""
    agent: Policy
    if config.policy is None and not config.pretrained:
        expert = preset("cpu", config.observation, config.task, reward=config.reward)
        return replace(expert, reward=config.reward or "sparse").checked(), None, "expert"
    if config.policy is not None and config.pretrained:
        raise ValueError("--policy and --pretrained both choose what acts: leave one out")
    if config.policy is not None:
        trained, agent, _ = load_agent(config.policy, config.checkpoint)
        actor = "policy"
    else:
        trained, agent, _ = load_pretrained(config.task)
        actor = "pretrained"
    if trained.task != config.task:
        raise ValueError(
            f"the task is {config.task}, but {config.policy} was trained on {trained.task}: name "
            "that task"
        )
    if config.observation not in (None, trained.observation):
        raise ValueError(
            f"--observation is {config.observation!r}, but the policy observes "
            f"{trained.observation!r}: leave it out"
        )
    return replace(trained, reward=config.reward or trained.reward).checked(), agent, actor


def _record(
    config: DemosConfig, env: VectorEnv[Any, Any, Any], policy: Policy, storage: Any
) -> int:
    """Writes episodes to a dataset as they are made; returns how many succeeded."""
    from minari.data_collector import EpisodeBuffer

    seed, written, tried, successes = config.seed, 0, 0, 0
    title = f"{config.episodes} episodes of {config.task} -> {storage.metadata['dataset_id']}"
    console = Console(stderr=True)
    with Display(config.episodes, title, unit="episodes", console=console) as display:
        while written < config.episodes:
            if tried >= GIVE_UP * config.episodes:
                raise ValueError(
                    f"--only-success: {written} of {tried} episodes were successes, fewer than "
                    f"the {config.episodes} asked for: leave it out, ask for fewer, or use a "
                    "better policy"
                )
            seeds = range(seed, seed + env.num_envs)
            made = [e for e in episodes(env, policy, seeds) if e.success or not config.only_success]
            made = made[: config.episodes - written]
            storage.update_episodes(
                EpisodeBuffer(
                    seed=episode.seed,
                    observations=episode.observations,
                    actions=episode.actions,
                    rewards=episode.rewards,
                    terminations=episode.terminations,
                    truncations=episode.truncations,
                    infos={"success": episode.successes},
                )
                for episode in made
            )
            seed, tried = seed + env.num_envs, tried + env.num_envs
            written, successes = written + len(made), successes + sum(e.success for e in made)
            display.update(written, {"eval/success": successes / max(written, 1)})
    return successes


def episodes(
    env: VectorEnv[Any, Any, Any], policy: Policy, seeds: Sequence[int]
) -> Iterator[Episode]:
    """One episode for each environment and seed, in the order of the seeds."""
    count, dtype = env.num_envs, env.single_action_space.dtype
    observation, _ = env.reset(seed=list(seeds))  # type: ignore[arg-type]  # one for each
    observations, steps = [_copied(observation)], list[tuple[NDArray[Any], ...]]()
    lengths = np.zeros(count, np.int64)  # 0 while an episode runs
    finals: list[Any] = [None] * count
    while not lengths.all():
        actions = np.asarray(policy.policy(observation)).astype(dtype)
        observation, rewards, terminated, truncated, info = env.step(actions)
        ended = terminated | truncated
        success = info["success"].copy()
        if ended.any():  # there, `info` and the observation are about the next episode
            success[ended] = info["final_info"]["success"][ended]
        for row in np.flatnonzero(ended & (lengths == 0)).tolist():
            lengths[row], finals[row] = len(steps) + 1, info["final_obs"][row]
        observations.append(_copied(observation))
        steps.append((actions, rewards.copy(), terminated.copy(), truncated.copy(), success))
    columns = [np.stack(column) for column in zip(*steps, strict=True)]  # each (steps, N, ...)
    for row, (seed, length) in enumerate(zip(seeds, lengths.tolist(), strict=True)):
        actions, rewards, terminated, truncated, success = (x[:length, row] for x in columns)
        first = [_row(some, row) for some in observations[:length]]
        yield Episode(
            seed,
            _stacked([*first, finals[row]]),
            actions,
            rewards,
            terminated,
            truncated,
            np.append(False, success),
        )


def _copied(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: part.copy() for key, part in observation.items()}
    return observation.copy()


def _row(observation: Any, row: int) -> Any:
    if isinstance(observation, dict):
        return {key: part[row] for key, part in observation.items()}
    return observation[row]


def _stacked(observations: Sequence[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([some[key] for some in observations]) for key in observations[0]}
    return np.stack(observations)


def _spec(config: TrainConfig) -> Any:
    """What Gymnasium makes the same environment from."""
    spec = deepcopy(gymnasium.spec(f"mimex/{config.task}-v0"))
    kinds = {"reward": config.reward, "observation": config.observation}
    spec.kwargs |= {**kinds, **changed_world(config)}
    if config.observation == "pixels":
        spec.kwargs["image_size"] = config.vision.image_size
    return spec
