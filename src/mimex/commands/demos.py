"""`mimex demos`: record demonstrations of an expert or a policy as a Minari dataset.

Episode k starts like ``gymnasium.make(...).reset(seed=SEED + k)``, so that its actions can be
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
"""Number of parallel environments; fewer for images, which need much memory."""

MAX_ATTEMPTS = 10
"""With --only-success, attempted episodes per requested one."""


@dataclass(frozen=True)
class DemosConfig:
    """Record demonstrations of a PixMC-Sparse task as a Minari dataset.

    They are recorded by the scripted expert, or by the policy of --policy or --pretrained. The
    dataset is written to Minari's folder (MINARI_DATASETS_PATH, or ~/.minari/datasets).
    """

    task: tyro.conf.Positional[str]
    """The task, such as FrankaPick."""
    episodes: int = 100
    """Number of episodes."""
    policy: Path | None = None
    """Run folder of a policy, which acts without noise."""
    pretrained: bool = False
    """Use the pretrained policy of the task."""
    checkpoint: Which = "latest"
    """Checkpoint of the run."""
    reward: str | None = None
    """dense, sparse or sparser; by default that of the policy, or sparse for the expert."""
    observation: str | None = None
    """Observation of the expert's episodes: oracle (default), robot or pixels. A policy's episodes
    have its own observation."""
    only_success: bool = False
    """Record successful episodes only."""
    seed: int = 0
    """Seed of the first episode; the seeds of the others follow."""
    name: str | None = None
    """Id of the dataset; by default mimex/TASK/expert-v0 (or policy-v0, pretrained-v0)."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
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
    settings, trained, actor = _select(config)
    name = config.name or f"mimex/{config.task}/{actor}-v0"
    namespace = parse_dataset_id(name)[0]
    final = get_dataset_path(name)
    if final.exists():
        raise ValueError(
            f"the dataset {name} exists ({final}): choose another --name, or remove it with "
            f"`minari delete {name}`"
        )
    most = PARALLEL_IMAGE_ENVS if settings.observation == "pixels" else PARALLEL_ENVS
    env = make_env(settings, min(config.episodes, most))
    aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=get_dataset_path()))
    try:
        policy = trained or Untrained("expert", settings.task, env, config.seed)
        (aside / "dataset").mkdir()
        storage = MinariStorage.new(
            aside / "dataset" / "data",
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
            env_spec=_spec(settings),
        )
        storage.update_metadata(
            {
                "dataset_id": name,
                "minari_version": minari_version,
                "algorithm_name": actor,
                "author": {"mimex"},
                "description": f"{settings.task}, reward {settings.reward}, by mimex's {actor}.",
                "requirements": [f"mimex[envs]=={__version__}"],
            }
        )
        successes = _record(config, env, policy, storage)
        for file in (aside / "dataset" / "data").iterdir():
            sync(file)
        if namespace is not None and namespace not in list_local_namespaces():
            create_namespace(namespace)
        (aside / "dataset").rename(final)  # atomic
    finally:
        env.close()
        shutil.rmtree(aside)
    print(f"{name}: {config.episodes} episodes, {successes} of them successful, in {final}")
    print(f'minari.load_dataset("{name}")')
    return 0


def _select(config: DemosConfig) -> tuple[TrainConfig, Policy | None, str]:
    """Returns the settings of the environments, the policy (None: the expert), and its name."""
    if config.policy is None and not config.pretrained:
        expert = preset("cpu", config.observation, config.task, reward=config.reward)
        return replace(expert, reward=config.reward or "sparse").checked(), None, "expert"
    if config.policy is not None and config.pretrained:
        raise ValueError("--policy and --pretrained both select a policy: leave one out")
    trained, policy, _ = (
        load_pretrained(config.task)
        if config.policy is None
        else load_agent(config.policy, config.checkpoint)
    )
    if trained.task != config.task:
        raise ValueError(
            f"the task is {config.task}, but {config.policy} was trained on {trained.task}: use "
            "that task"
        )
    if config.observation not in (None, trained.observation):
        raise ValueError(
            f"--observation is {config.observation!r}, but the policy observes "
            f"{trained.observation!r}: leave it out"
        )
    actor = "pretrained" if config.pretrained else "policy"
    return replace(trained, reward=config.reward or trained.reward).checked(), policy, actor


def _record(
    config: DemosConfig, env: VectorEnv[Any, Any, Any], policy: Policy, storage: Any
) -> int:
    """Writes episodes to a dataset; returns the number of successful ones."""
    seed, written, tried, successes = config.seed, 0, 0, 0
    title = f"{config.episodes} episodes of {config.task} -> {storage.metadata['dataset_id']}"
    console = Console(stderr=True)
    with Display(config.episodes, title, unit="episodes", console=console) as display:
        while written < config.episodes:
            if tried >= MAX_ATTEMPTS * config.episodes:
                raise ValueError(
                    f"--only-success: {written} of {tried} episodes were successful, fewer than "
                    f"the {config.episodes} requested: leave it out, request fewer, or use a "
                    "better policy"
                )
            seeds = range(seed, seed + env.num_envs)
            new = list(episodes(env, policy, seeds))
            if config.only_success:
                new = [episode for episode in new if episode.infos["success"][-1]]
            new = new[: config.episodes - written]
            storage.update_episodes(new)
            written += len(new)
            successes += sum(bool(episode.infos["success"][-1]) for episode in new)
            seed, tried = seed + env.num_envs, tried + env.num_envs
            display.update(written, {"eval/success": successes / max(written, 1)})
    return successes


def episodes(env: VectorEnv[Any, Any, Any], policy: Policy, seeds: Sequence[int]) -> Iterator[Any]:
    """Yields one episode per environment, in the order of seeds, as Minari's ``EpisodeBuffer``."""
    from minari.data_collector import EpisodeBuffer

    count, dtype = env.num_envs, env.single_action_space.dtype
    observation, _ = env.reset(seed=list(seeds))  # type: ignore[arg-type]  # one for each
    observations, steps = [deepcopy(observation)], list[tuple[NDArray[Any], ...]]()
    lengths = np.zeros(count, np.int64)  # 0 while an episode runs
    finals: list[Any] = [None] * count
    while not lengths.all():
        actions = np.asarray(policy.policy(observation)).astype(dtype)
        observation, rewards, terminated, truncated, info = env.step(actions)
        ended = terminated | truncated
        success = info["success"].copy()
        if ended.any():  # there, observation and info belong to the next episode
            success[ended] = info["final_info"]["success"][ended]
        for row in np.flatnonzero(ended & (lengths == 0)).tolist():
            lengths[row], finals[row] = len(steps) + 1, info["final_obs"][row]
        observations.append(deepcopy(observation))
        steps.append((actions, rewards.copy(), terminated.copy(), truncated.copy(), success))
    columns = [np.stack(column) for column in zip(*steps, strict=True)]  # each (steps, N, ...)
    for row, (seed, length) in enumerate(zip(seeds, lengths.tolist(), strict=True)):
        actions, rewards, terminated, truncated, success = (x[:length, row] for x in columns)
        observed = _stack([*(_row(each, row) for each in observations[:length]), finals[row]])
        yield EpisodeBuffer(
            seed=seed,
            observations=observed,
            actions=actions,
            rewards=rewards,
            terminations=terminated,
            truncations=truncated,
            infos={"success": np.append(False, success)},
        )


def _row(observation: Any, row: int) -> Any:
    if isinstance(observation, dict):
        return {key: part[row] for key, part in observation.items()}
    return observation[row]


def _stack(observations: Sequence[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([each[key] for each in observations]) for key in observations[0]}
    return np.stack(observations)


def _spec(config: TrainConfig) -> Any:
    """Returns the Gymnasium spec of the recorded environment."""
    spec = deepcopy(gymnasium.spec(f"mimex/{config.task}-v0"))
    kinds = {"reward": config.reward, "observation": config.observation}
    spec.kwargs |= {**kinds, **changed_world(config)}
    if config.observation == "pixels":
        spec.kwargs["image_size"] = config.vision.image_size
    return spec
