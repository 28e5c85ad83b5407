"""`mimex pretrain`: an image encoder, trained without labels on images of the wrist camera."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import torch
import tyro
from torch import Generator, Tensor

from mimex import __version__
from mimex.commands.build import load_agent, make_env
from mimex.config.json import to_json
from mimex.envs.catalog import NAMES, TASKS
from mimex.envs.nearest import choose
from mimex.files import replacing, sync
from mimex.nn.mae import MAE, draw_visible, learning_rate
from mimex.nn.parallel import (
    available_cores,
    parallel_map,
    split_rows,
    summed_gradients,
    use_workers,
)
from mimex.nn.state import load_generator, load_optimizer, optimizer_state
from mimex.nn.vit import ViT, save_encoder
from mimex.track.clock import Clock
from mimex.track.display import Display, optional_stdout
from mimex.track.jsonl import JSONLines
from mimex.track.loggers import Loggers
from mimex.train.checkpoint import Checkpoints
from mimex.train.folder import RunFolder
from mimex.train.runner import ROWS
from mimex.train.signals import StopRequest
from mimex.types import Metrics

CHUNK = 64
"""Images per forward pass on one thread."""

BETAS, WEIGHT_DECAY = (0.9, 0.95), 0.05
"""Of AdamW (He et al., 2022)."""

MAY_CHANGE = ("out", "threads", "save_every", "log_every")
"""Settings with which a run may be continued though they differ from those of its start."""

ENCODER = "encoder.safetensors"
"""The pretrained encoder in the run folder; its card is a JSON file of the same name."""


@dataclass(frozen=True)
class PretrainConfig:
    """Pretrain the image encoder of --vision.encoder vit as a masked autoencoder, or continue to.

    Images are those of the wrist camera in PixMC-Sparse, where scripted experts and random actions
    move the robot, with varied colors, light and camera noise. `mimex pretrain probe` measures what
    the encoder's features tell of the scene.
    """

    out: Path = Path("runs/pretrain")
    """Run folder; encoder.safetensors in it is the encoder. The same command resumes the run."""
    steps: int = 10_000
    """Optimizer steps; the learning rate falls to 0 over them."""
    batch: int = 128
    """Images per step, the same number of each task (and of each of --runs)."""
    tasks: tuple[str, ...] = TASKS
    """Tasks that images are drawn from."""
    runs: tuple[Path, ...] = ()
    """Run folders of PixMC-Sparse tasks, whose agents also move the robot."""
    image_size: int = 64
    """Width and height of the images (pixels)."""
    patch: int = 8
    """Width and height of a patch (pixels)."""
    width: int = 192
    """Token width of the encoder, and dimensions of its features."""
    depth: int = 6
    """Transformer blocks of the encoder."""
    heads: int = 3
    """Attention heads of the encoder."""
    mask_ratio: float = 0.75
    """Share of the patches that are hidden."""
    varied: float = 0.5
    """Share of the images with colors, light and camera noise that the tasks do not have."""
    lr: float = 1e-3
    """Peak learning rate."""
    seed: int = 0
    """Random seed."""
    log_every: int = 10
    """Steps between rows of metrics."""
    save_every: int = 500
    """Steps between checkpoints, with the encoder and images of reconstructions."""
    threads: int | None = None
    """Threads; None for one per core. The result does not depend on it."""

    def checked(self) -> PretrainConfig:
        """Returns these settings; raises an error that names the first invalid one."""
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is int and value < (0 if each.name == "seed" else 1):
                raise ValueError(f"{_flag(each.name)} is {value}, but must be at least 1")
        if not 0 < self.mask_ratio < 1:
            raise ValueError(f"--mask-ratio is {self.mask_ratio}, but must be between 0 and 1")
        if not 0 <= self.varied <= 1:
            raise ValueError(f"--varied is {self.varied}, but must be in [0, 1]")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"--lr is {self.lr}, but must be above 0")
        for task in self.tasks:
            choose("--tasks", task, NAMES)
        sources = len(self.tasks) + len(self.runs)
        if sources == 0 or self.batch % sources:
            raise ValueError(
                f"--batch is {self.batch}, which {sources} sources of images (--tasks and --runs) "
                f"cannot share equally: use a multiple of {max(sources, 1)}"
            )
        return self


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and pretrains, or probes."""
    if arguments[:1] == ["probe"]:
        from mimex.commands import probe

        return probe.run(arguments[1:])
    config = tyro.cli(PretrainConfig, args=arguments, prog="mimex pretrain")
    return pretrain(config.checked())


@optional_stdout()
def pretrain(config: PretrainConfig) -> int:
    """Trains to the end, or until Ctrl-C or SIGTERM; then the same call resumes.

    Returns:
        0 at the end, and 128 plus its number after a signal.
    """
    use_workers(config.threads or available_cores())
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(config.out))
        stop = stack.enter_context(StopRequest())
        settings = {name: to_json(value) for name, value in asdict(config).items()}
        folder.check(settings, MAY_CHANGE)
        training = Pretraining(config)
        stack.callback(training.close)
        checkpoints = Checkpoints(folder.checkpoints)
        saved = checkpoints.latest()
        if saved is not None:
            with checkpoints.loading():
                training.load_state_dict(saved[1])
        notes = folder.restore_metrics(
            None if saved is None else (saved[0], saved[1].get(ROWS)), config.save_every
        )
        notes += folder.claim(settings, MAY_CHANGE)
        loggers = stack.enter_context(Loggers([JSONLines(folder.metrics)]))
        title = f"pretraining on {config.batch} images per step -> {folder.path}"
        start = training.step
        display = stack.enter_context(Display(config.steps, title, start_step=start))
        for note in [*notes, *[f"resuming from step {start:,}"] * (start > 0)]:
            display.note(note)
        saved_at = start
        while training.step < config.steps and not stop:
            training.advance()
            display.advance(training.step)
            if training.step % config.log_every == 0 or training.step == config.steps:
                metrics = training.metrics()
                loggers.log(training.step, metrics)
                folder.rows += 1
                display.update(training.step, metrics)
            if training.step % config.save_every == 0 or training.step == config.steps:
                _save(training, folder, checkpoints)
                saved_at = training.step
        if training.step > saved_at:
            _save(training, folder, checkpoints)
        if stop.signal is not None:
            display.note(
                f"stopped by {stop.signal.name} at step {training.step:,} and saved; the same "
                "command continues"
            )
            return 128 + stop.signal
        display.note(f"done: {training.step:,} steps; the encoder is {folder.path / ENCODER}")
    return 0


class Pretraining:
    """The autoencoder, its optimizer and the sources of images.

    Attributes:
        step: Optimizer steps so far.

    Args:
        config: The settings.
    """

    def __init__(self, config: PretrainConfig) -> None:
        from mimex.envs.wrist_images import WristImages  # loads MuJoCo

        self.config, self.step = config, 0
        seeds = np.random.SeedSequence(config.seed).generate_state(2 + _sources(config)).tolist()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeds[0])
            encoder = ViT(
                config.image_size,
                heads=config.heads,
                width=config.width,
                depth=config.depth,
                patch=config.patch,
            )
            self.network = MAE(encoder)
        self.generator = Generator().manual_seed(seeds[1])
        self._parameters = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        # As in MAE, biases and norms do not decay.
        groups: list[dict[str, Any]] = [
            {"params": [p for p in self._parameters.values() if p.ndim > 1]},
            {"params": [p for p in self._parameters.values() if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, config.lr, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self.sources: list[WristImages] = []
        envs = config.batch // _sources(config)
        places: list[str | Path] = [*config.tasks, *config.runs]
        for place, seed in zip(places, seeds[2:], strict=True):
            env, policy = _simulations(place, envs)
            source = WristImages(env, config.image_size, seed, policy=policy, varied=config.varied)
            self.sources.append(source)
        self._losses: list[float] = []  # since the last row of metrics
        self._clock, self._reported = Clock(), 0
        self._images = torch.empty(0)

    def advance(self) -> None:
        """One optimizer step on new images."""
        config, network = self.config, self.network
        with self._clock("images"):
            drawn = parallel_map(lambda source: source.draw(), self.sources)
            images = torch.from_numpy(np.concatenate(drawn))
        visible = draw_visible(len(images), network.patches, config.mask_ratio, self.generator)

        def loss(rows: Tensor) -> tuple[Tensor, float]:
            total = network.loss(images[rows], visible[rows]).sum() / len(images)
            return total, float(total.detach())

        with self._clock("learning"):
            chunks = split_rows(torch.arange(len(images)), CHUNK)
            losses, gradients = summed_gradients(loss, chunks, [*self._parameters.values()])
            if not math.isfinite(sum(losses)):
                raise RuntimeError(
                    f"the loss of step {self.step + 1} is {sum(losses)}: --lr {config.lr:g} is too "
                    "high; choose a lower one and another folder. Earlier checkpoints are intact"
                )
            for parameter, gradient in zip(self._parameters.values(), gradients, strict=True):
                parameter.grad = gradient
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(config.lr, (self.step + 1) / config.steps)
            self.optimizer.step()
        self.step += 1
        self._losses.append(sum(losses))
        self._images = images

    def metrics(self) -> Metrics:
        """The mean loss since the last call, and where the time went."""
        metrics = {"pretrain/loss": sum(self._losses) / len(self._losses)}
        metrics["pretrain/lr"] = float(self.optimizer.param_groups[0]["lr"])
        metrics |= self._clock.read(self.step - self._reported)
        self._losses, self._reported = [], self.step
        return metrics

    def reconstructions(self) -> Tensor:
        """A grid of the newest images: original, masked, reconstructed; ``(H, W, 3)`` uint8."""
        count = len(self._images) // len(self.sources)
        images = self._images[:: max(count // 2, 1)]  # two of each source: of policy and chance
        generator = Generator().manual_seed(self.step)
        network, ratio = self.network, self.config.mask_ratio
        visible = draw_visible(len(images), network.patches, ratio, generator)
        rows = torch.stack([images, *network.reconstruct(images, visible)])  # (3, B, 3, H, W)
        grid = rows.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)
        return grid.repeat_interleave(2, 0).repeat_interleave(2, 1)

    def card(self, metrics_path: Path) -> dict[str, Any]:
        """What the encoder is, and how it was made."""
        config, rows = self.config, metrics_path.read_text().splitlines()
        encoder = self.network.encoder
        return {
            "architecture": {
                name: getattr(config, name)
                for name in ("image_size", "patch", "width", "depth", "heads")
            },
            "parameters": sum(parameter.numel() for parameter in encoder.parameters()),
            "data": {
                "tasks": list(config.tasks),
                "runs": len(config.runs),
                "images": self.step * config.batch,
                "varied": config.varied,
            },
            "steps": self.step,
            "batch": config.batch,
            "mask_ratio": config.mask_ratio,
            "lr": config.lr,
            "seed": config.seed,
            "loss": json.loads(rows[-1])["pretrain/loss"] if rows else None,
            "version": __version__,
        }

    def state_dict(self) -> dict[str, Any]:
        """The exact state."""
        return {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": optimizer_state(self.optimizer, self._parameters),
            "generator": self.generator.get_state(),
            "sources": [source.state_dict() for source in self.sources],
            "losses": self._losses,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizer, self._parameters, state["optimizer"])
        load_generator(self.generator, state["generator"])
        for source, its in zip(self.sources, state["sources"], strict=True):
            source.load_state_dict(its)
        self._losses = list(state["losses"])
        self.step = self._reported = int(state["step"])

    def close(self) -> None:
        """Frees the simulations' cameras."""
        for source in self.sources:
            source.close()


def _save(training: Pretraining, folder: RunFolder, checkpoints: Checkpoints) -> None:
    """Writes a checkpoint, the encoder with its card, and reconstructions."""
    folder.require_same()
    if folder.metrics.exists():
        sync(folder.metrics)  # the checkpoint relies on its rows
    checkpoints.save(training.step, training.state_dict() | {ROWS: folder.rows})
    save_encoder(folder.path / ENCODER, training.network.encoder)
    write_card(folder.path / ENCODER, training.card(folder.metrics))
    with replacing(folder.path / "reconstructions" / f"step_{training.step:09d}.png") as aside:
        matplotlib.image.imsave(aside, training.reconstructions().numpy())


def write_card(weights: Path, card: Mapping[str, Any]) -> None:
    """Writes the card of an encoder, a JSON file beside its weights."""
    with replacing(weights.with_suffix(".json")) as aside:
        aside.write_text(json.dumps(card, indent=2) + "\n")


def _simulations(place: str | Path, count: int) -> tuple[Any, Any]:
    """Environments of a task, or of a run and its policy."""
    from mimex.envs.manipulation import VectorManipulation

    if isinstance(place, str):
        return VectorManipulation(place, count, threads=1), None
    played, agent, _ = load_agent(place, "latest")
    choose(f"the task of {place}", played.task, NAMES)
    return make_env(played, count).unwrapped, agent.policy


def _sources(config: PretrainConfig) -> int:
    return len(config.tasks) + len(config.runs)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
