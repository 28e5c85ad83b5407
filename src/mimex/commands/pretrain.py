"""`mimex pretrain`: pretrain the image encoder on unlabeled images of the wrist camera."""

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
"""Settings that may differ when a run is resumed."""

ENCODER = "encoder.safetensors"
"""Weights of the encoder in the run folder; its card is the JSON file of the same name."""


@dataclass(frozen=True)
class PretrainConfig:
    """Pretrain the image encoder of --vision.encoder vit as a masked autoencoder, or resume.

    Images are those of the wrist camera in PixMC-Sparse, where scripted experts and random actions
    move the robot. `mimex pretrain probe` evaluates the encoder.
    """

    out: Path = Path("runs/pretrain")
    """Run folder; encoder.safetensors in it is the encoder. The same command resumes the run."""
    steps: int = 10_000
    """Optimizer steps; the learning rate falls to 0 over them."""
    batch: int = 128
    """Images per step, equally many of each of --tasks and --runs."""
    tasks: tuple[str, ...] = TASKS
    """Tasks that images are drawn from."""
    runs: tuple[Path, ...] = ()
    """Run folders on PixMC-Sparse tasks, whose policies also provide images."""
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
    """Fraction of masked patches."""
    varied: float = 0.5
    """Fraction of images with randomized colors, light and camera noise."""
    lr: float = 1e-3
    """Peak learning rate."""
    seed: int = 0
    """Random seed."""
    log_every: int = 10
    """Steps between rows of metrics."""
    save_every: int = 500
    """Steps between checkpoints, with the encoder and images of reconstructions."""
    threads: int | None = None
    """Threads; by default one per core. The result does not depend on it."""

    def checked(self) -> PretrainConfig:
        """Returns these settings; raises an error that names the first invalid one."""
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is int and value < (0 if each.name == "seed" else 1):
                flag = each.name.replace("_", "-")
                raise ValueError(f"--{flag} is {value}, but must be at least 1")
        if not 0 < self.mask_ratio < 1:
            raise ValueError(f"--mask-ratio is {self.mask_ratio}, but must be between 0 and 1")
        if not 0 <= self.varied <= 1:
            raise ValueError(f"--varied is {self.varied}, but must be in [0, 1]")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"--lr is {self.lr}, but must be above 0")
        for task in self.tasks:
            choose("--tasks", task, NAMES)
        if not self.sources or self.batch % len(self.sources):
            raise ValueError(
                f"--batch is {self.batch}, which {len(self.sources)} --tasks and --runs cannot "
                f"share equally: use a multiple of {max(len(self.sources), 1)}"
            )
        return self

    @property
    def sources(self) -> list[str | Path]:
        """Tasks and run folders that provide images."""
        return [*self.tasks, *self.runs]


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    if arguments[:1] == ["probe"]:
        from mimex.commands import probe

        return probe.run(arguments[1:])
    config = tyro.cli(PretrainConfig, args=arguments, prog="mimex pretrain")
    return pretrain(config.checked())


@optional_stdout()
def pretrain(config: PretrainConfig) -> int:
    """Trains to the last step, or until Ctrl-C or SIGTERM; the same call then resumes.

    Returns:
        0 at the end, 128 plus the signal number after a signal.
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
                "command resumes"
            )
            return 128 + stop.signal
        display.note(f"done: {training.step:,} steps; the encoder is {folder.path / ENCODER}")
    return 0


class Pretraining:
    """The autoencoder, its optimizer and the sources of images."""

    def __init__(self, config: PretrainConfig) -> None:
        from mimex.envs.wrist_images import WristImages  # loads MuJoCo

        self.config, self.step = config, 0
        count = len(config.sources)
        seeds = np.random.SeedSequence(config.seed).generate_state(2 + count).tolist()
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
        for source, seed in zip(config.sources, seeds[2:], strict=True):
            env, policy = _environments(source, config.batch // count)
            images = WristImages(env, config.image_size, seed, policy=policy, varied=config.varied)
            self.sources.append(images)
        self._losses: list[float] = []  # since the last row of metrics
        self._clock, self._reported = Clock(), 0
        self._images = torch.empty(0)

    def advance(self) -> None:
        """Takes one optimizer step on new images."""
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
        """Returns the mean loss since the last call, the learning rate, and times."""
        loss, lr = sum(self._losses) / len(self._losses), self.optimizer.param_groups[0]["lr"]
        times = self._clock.read(self.step - self._reported)
        self._losses, self._reported = [], self.step
        return {"pretrain/loss": loss, "pretrain/lr": float(lr), **times}

    def reconstructions(self) -> Tensor:
        """Returns a grid of images: original, masked, reconstructed; ``(H, W, 3)`` uint8."""
        count = len(self._images) // len(self.sources)
        images = self._images[:: max(count // 2, 1)]  # two of each source: policy, random actions
        generator = Generator().manual_seed(self.step)
        visible = draw_visible(len(images), self.network.patches, self.config.mask_ratio, generator)
        rows = torch.stack([images, *self.network.reconstruct(images, visible)])  # (3, B, 3, H, W)
        grid = rows.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)
        return grid.repeat_interleave(2, 0).repeat_interleave(2, 1)

    def card(self, metrics_path: Path) -> dict[str, Any]:
        """Returns the encoder's card: architecture, data and training."""
        config, rows = vars(self.config), metrics_path.read_text().splitlines()
        return {
            "architecture": {
                name: config[name] for name in ("image_size", "patch", "width", "depth", "heads")
            },
            "parameters": sum(p.numel() for p in self.network.encoder.parameters()),
            "data": {
                "tasks": list(self.config.tasks),
                "runs": len(self.config.runs),
                "images": self.step * self.config.batch,
                "varied": self.config.varied,
            },
            "steps": self.step,
            **{name: config[name] for name in ("batch", "mask_ratio", "lr", "seed")},
            "loss": json.loads(rows[-1])["pretrain/loss"] if rows else None,
            "version": __version__,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": optimizer_state(self.optimizer, self._parameters),
            "generator": self.generator.get_state(),
            "sources": [source.state_dict() for source in self.sources],
            "losses": self._losses,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        load_optimizer(self.optimizer, self._parameters, state["optimizer"])
        load_generator(self.generator, state["generator"])
        for source, its in zip(self.sources, state["sources"], strict=True):
            source.load_state_dict(its)
        self._losses = list(state["losses"])
        self.step = self._reported = int(state["step"])

    def close(self) -> None:
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


def _environments(source: str | Path, count: int) -> tuple[Any, Any]:
    """Returns environments of a task, or of a run with its policy."""
    from mimex.envs.manipulation import VectorManipulation

    if isinstance(source, str):
        return VectorManipulation(source, count, threads=1), None
    played, agent, _ = load_agent(source, "latest")
    choose(f"the task of {source}", played.task, NAMES)
    return make_env(played, count).unwrapped, agent.policy
