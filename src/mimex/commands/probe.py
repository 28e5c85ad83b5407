"""`mimex pretrain probe`: linear probes of an image encoder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mimex.agents.encoders import SHIPPED, VIT_CHUNK
from mimex.commands.pretrain import write_card
from mimex.envs.catalog import NAMES, TASKS
from mimex.envs.nearest import choose
from mimex.files import read_object
from mimex.nn.networks import ConvEncoder
from mimex.nn.parallel import available_cores, parallel_map, split_rows, use_workers
from mimex.nn.probe import ridge_r2
from mimex.nn.vit import ViT, load_encoder
from mimex.track.display import Display

PARTS = {"train": (0, 1), "validation": (2,), "test": (3,)}
"""Split of the environments, by their index modulo 4."""

ENVS, EVERY = 128, 40
"""Number of environments, and control steps between two images of an environment."""

Images = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ProbeConfig:
    """Predict positions from an encoder's features by ridge regression on new images.

    Prints R2 for the encoder, a random ViT, a random CNN and raw pixels, and adds it to the
    encoder's card, the JSON file beside it. R2 is 1 for a perfect prediction, 0 for the mean.
    """

    encoder: tyro.conf.Positional[Path] = SHIPPED
    """An encoder.safetensors of `mimex pretrain`, or another file that --vision.checkpoint takes;
    by default the encoder that is shipped with mimex."""
    tasks: tuple[str, ...] = TASKS
    """Tasks that images are drawn from; each has its own probes."""
    images: int = 2048
    """Images per task: half for training, a quarter each for validation and test."""
    image_size: int = 224
    """Width and height of the images (pixels) for a ViT-S/16; other files have their own."""
    heads: int = 12
    """Attention heads of a ViT-S/16: 12 for MVP, 6 for timm; other files have their own."""
    seed: int = 1
    """Random seed of images and random networks."""
    threads: int | None = None
    """Threads; by default one per core. The result does not depend on it."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    config = tyro.cli(ProbeConfig, args=arguments, prog="mimex pretrain probe")
    for task in config.tasks:
        choose("--tasks", task, NAMES)
    if config.images < ENVS:
        raise ValueError(f"--images is {config.images}, but must be at least {ENVS}")
    if config.seed < 0:
        raise ValueError(f"--seed is {config.seed}, but must be 0 or more")
    use_workers(config.threads or available_cores())
    network = load_encoder(config.encoder, image_size=config.image_size, heads=config.heads)
    found = probe(network, config)
    table = Table("R2 of", *found)
    for target in next(iter(found.values())):
        table.add_row(target, *(f"{scores[target]:.3f}" for scores in found.values()))
    Console().print(table)
    path = config.encoder.with_suffix(".json")
    card: dict[str, Any] = read_object(path) if path.exists() else {}
    write_card(config.encoder, card | {"probes": {"images_per_task": config.images, "r2": found}})
    print(path)
    return 0


def probe(network: ViT, config: ProbeConfig) -> dict[str, dict[str, float]]:
    """Returns R2 by encoder and target, averaged over the tasks that have the target."""
    encoders = _encoders(network, config.seed)
    scores: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in encoders}
    title = f"probes of {config.encoder} on {config.images} images per task"
    with Display(len(config.tasks), title, unit="tasks", console=Console(stderr=True)) as display:
        for task in display.track(config.tasks):
            images, targets = _drawn(task, network.image_size, config)
            remainders = torch.arange(len(images)) % ENVS % 4
            parts = [torch.isin(remainders, torch.tensor(own)) for own in PARTS.values()]
            for name, encode in encoders.items():
                features = encode(images)
                for target, values in targets.items():
                    train, validation, test = ((features[part], values[part]) for part in parts)
                    scores[name][target].append(ridge_r2(train, validation, test))
    return {
        name: {target: float(np.mean(each)) for target, each in by_target.items()}
        for name, by_target in scores.items()
    }


def _drawn(task: str, size: int, config: ProbeConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns images ``(n, 3, H, W)`` of a task, and targets ``(n, T)`` by name."""
    from mimex.envs.manipulation import VectorManipulation  # loads MuJoCo
    from mimex.envs.wrist_images import WristImages

    env = VectorManipulation(task, ENVS, threads=config.threads or available_cores())
    source = WristImages(env, size, config.seed, varied=0.0, every=EVERY)
    images, targets = list[Any](), defaultdict[str, list[Any]](list)
    try:
        for _ in range(config.images // ENVS):
            images.append(source.draw())
            for name, values in source.targets().items():
                targets[name].append(values)
    finally:
        source.close()
    arrays = {name: torch.from_numpy(np.concatenate(each)) for name, each in targets.items()}
    return torch.from_numpy(np.concatenate(images)), arrays


def _encoders(network: ViT, seed: int) -> dict[str, Images]:
    """Returns the encoder and the baselines."""
    size, patch = network.image_size, network.patch_embed.proj.kernel_size[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = {"heads": network.heads, "width": network.features, "depth": len(network.blocks)}
        random = ViT(size, patch=patch, **shape)
        convolution = ConvEncoder(size, features=network.features)
    return {
        "pretrained": _without_gradients(network),
        "random ViT": _without_gradients(random),
        "random CNN": _without_gradients(convolution),
        "raw pixels": lambda images: images.flatten(1) / 255,
    }


def _without_gradients(network: Images) -> Images:
    @torch.no_grad()
    def encoded(images: Tensor) -> Tensor:
        return network(images)

    return lambda images: torch.cat(parallel_map(encoded, split_rows(images, VIT_CHUNK)))
