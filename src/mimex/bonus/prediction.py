"""The base class of bonuses that learn: what MIMEx, RND, ICM and the others share.

A method defines its mask, its networks (``build``) and its prediction error (``errors``). Window
checks, normalization, random numbers, scoring, learning and saving are here.
"""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import io
import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypedDict

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.inputs import (
    Encoder,
    Lock,
    check_finite,
    check_fraction,
    check_one_hot,
    isolated,
    outside_inference,
    read_actions,
    read_features,
)
from mimex.bonus.masking import FeatureMask, MaskDistribution
from mimex.data.checks import require_positive
from mimex.nn import processes
from mimex.nn.parallel import parallel_map, split_rows, summed_gradients
from mimex.nn.running import RunningMeanStd
from mimex.nn.state import (
    check_optimizer,
    load_generator,
    load_optimizer,
    optimizer_state,
    require_same,
)
from mimex.types import Metrics, Window

FEATURE_CLIP = 5.0
"""Clip range of normalized features, in standard deviations (as in RND, Burda et al. 2018)."""

CHUNK_WINDOWS, CHUNK_FEATURES = 2048, 1 << 22
"""Most windows, and features (16 MB), in one forward pass: larger batches go through the network
in chunks whose gradients are summed, which bounds the memory."""


class Shared(TypedDict, total=False):
    """Constructor arguments of every bonus that learns; see ``MaskedPrediction``."""

    encoder: Encoder | None
    normalize: bool
    device: torch.device | str
    seed: int


class MaskedPrediction(ABC):
    """An intrinsic reward that is the error of predicting the masked part of a window.

    Attributes:
        feature_dim: Features per step; 0 before the first window, which creates the networks.
        network: The networks.
        steps: Optimizer steps taken.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        length: Window length.
        mask: The mask distribution.
        lr: Adam learning rate.
        masks: Masks per window, K; their errors are averaged.
        uses_actions: Whether the method sees actions; implied by ``action_dim``.
        action_dim: Action dimensions, or number of discrete actions; inferred from the first
            window, or from the wrapped environment, if None.
        encoder: Maps raw observations to features; required for images.
        normalize: Normalize features by running statistics, clipped to +-5. Before the first
            ``learn`` a batch is normalized by its own statistics.
        device: PyTorch device of the networks.
        seed: Random seed of the initial weights and of the masks.
    """

    no_settings: ClassVar[tuple[str, ...]] = ("length", "device", "seed")
    """Constructor arguments that are not settings of a training run."""

    discrete_obs: bool | None = False  # None: not known before the first window
    loss: str = "squared"
    statistics: RunningMeanStd | None = None

    def __init__(
        self,
        feature_dim: int | None,
        *,
        length: int,
        mask: MaskDistribution,
        lr: float,
        masks: int = 1,
        uses_actions: bool = False,
        action_dim: int | None = None,
        encoder: Encoder | None = None,
        normalize: bool = False,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        self.lock = Lock()
        require_positive(length=length, masks=masks, feature_dim=feature_dim, action_dim=action_dim)
        if not 0 < lr < math.inf:
            raise ValueError(f"lr={lr} must be positive and finite.")
        if feature_dim is not None and uses_actions and action_dim is None:
            raise ValueError("feature_dim is given and action_dim is not: give both or neither.")
        mask.require(length)
        self.length, self.masks, self.lr, self.seed = length, masks, lr, seed
        self.mask, self.action_dim, self.encoder = mask, action_dim, encoder
        self.uses_actions = uses_actions or action_dim is not None
        self.device = torch.device(device)
        self.normalize, self.steps, self.feature_dim = normalize, 0, 0
        self.generator = Generator(self.device).manual_seed(seed)
        if feature_dim is not None:
            self.create_networks(feature_dim)

    # What a method defines.

    @abstractmethod
    def build(self, feature_dim: int) -> nn.Module:
        """Returns the networks; parameters that do not require a gradient are not trained."""

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predicts the masked part. A method whose reward is not its error overrides ``score``.

        Args:
            x: ``(B, L, D)`` features.
            actions: ``(B, L, A)``, or None.
            valid: ``(B, L)``.
            masked: ``(K, B, L)`` or ``(K, B, L, D)``.

        Returns:
            The prediction errors ``(K, B)``, and a loss of each window ``(B,)`` that is added to
            their mean (zeros for most methods).
        """
        raise NotImplementedError(f"{type(self).__name__} has neither errors nor score.")

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rewards, losses, and the std over masks of each window: ``(B,)`` each."""
        errors, extra = self.errors(x, actions, valid, masked)
        means, std = self.mean_over_masks(errors, masked)
        return means.detach(), means + extra, std

    def usable_steps(self, valid: Tensor) -> Tensor:
        """The steps ``(B, L)`` that may be masked and seen: by default the valid ones."""
        return valid

    def extra_state(self) -> dict[str, Any]:
        """State of a method beside its networks."""
        return {"action_dim": self.action_dim} if self.uses_actions else {}

    def load_extra(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (most have none)
        """Restores ``extra_state``."""

    # What all methods share.

    def mean_over_masks(self, errors: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std over the K masks of errors ``(K, B)``: ``(B,)`` each.

        The mean is over the masks that mask anything: of a short window some may not.
        """
        means = errors.sum(0) / masked.flatten(2).any(2).sum(0).clamp(min=1)
        return means, errors.detach().std(0) if len(errors) > 1 else torch.zeros_like(means)

    @property
    def effective_ratio(self) -> float:
        """The masked fraction of a full window, after rounding to whole steps or features."""
        return self.mask.effective_ratio(self.length)

    @property
    def categorical(self) -> bool:
        """Whether features are one-hot codes of discrete observations, predicted by softmax."""
        return bool(self.discrete_obs) and self.encoder is None and self.loss == "likelihood"

    @isolated
    def inputs(self, window: Window) -> Tensor:
        """The features ``(B, L, D)`` that the networks see: encoded and normalized."""
        return self._read(window)[1]

    @isolated
    def reward(self, window: Window) -> Tensor:
        """Scores each window ``(B,)``, as ``learn`` would now; changes nothing."""
        _, x, actions, valid = self._read(window)
        masked = self.mask.draw(valid, self.masks, self._copied_generator())
        rewards = self._rewards(self._chunks(len(x)), x, actions, valid, masked)
        return check_finite(rewards, "the reward")

    @isolated
    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores all windows, then takes one optimizer step on a random fraction of them.

        In a distributed run each process passes the same number of windows, and gradients are
        averaged.

        Returns:
            The rewards ``(B,)`` with the weights from before the step, and metrics.
        """
        check_fraction(train_fraction)
        raw, x, actions, valid = self._read(window)
        generator = self._copied_generator()  # so that a failed call draws no random numbers
        masked = self.mask.draw(valid, self.masks, generator)
        trained = max(1, round(train_fraction * len(x)))
        order = torch.arange(len(x), device=self.device)
        if trained < len(x):
            order = torch.randperm(len(x), generator=generator, device=self.device)
        rewards, sums = x.new_empty(len(x)), x.new_zeros(2)

        def loss(rows: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            scores, losses, std = self.score(*_select(rows, x, actions, valid, masked))
            mean = losses.sum() / trained
            return mean, (scores, torch.stack([mean.detach(), std.sum() / trained]))

        chunks = [order[:trained][rows] for rows in self._chunks(trained)]
        results, gradients = summed_gradients(loss, chunks, [*self.trainable.values()])
        for rows, (scores, part) in zip(chunks, results, strict=True):
            rewards[rows] = scores
            sums += part
        rest = [order[trained:][rows] for rows in self._chunks(len(x) - trained)]
        rewards[order[trained:]] = self._rewards(rest, x, actions, valid, masked)
        check_finite(rewards, "the reward")

        self.generator = generator
        for parameter, gradient in zip(self.trainable.values(), gradients, strict=True):
            parameter.grad = gradient
        sums = processes.average_gradients([*self.trainable.values()], sums)
        self.optimizer.step()
        if self.statistics is not None:
            self.statistics.update_distributed(raw[window.valid.to(self.device)])
        self.steps += 1
        gathered = processes.all_gather(rewards)
        metrics = {
            "bonus/loss": float(sums[0]),
            "bonus/mean": float(gathered.mean()),
            "bonus/std": float(gathered.std(correction=0)),
            "bonus/trained": float(trained * processes.size()),
        }
        if self.masks > 1:
            metrics["bonus/standard_error"] = float(sums[1]) / self.masks**0.5
        return rewards, metrics

    def _rewards(
        self,
        chunks: list[Tensor],
        x: Tensor,
        actions: Tensor | None,
        valid: Tensor,
        masked: Tensor,
    ) -> Tensor:
        """Rewards of the windows in chunks of rows, concatenated."""

        @torch.no_grad()
        def score(rows: Tensor) -> Tensor:
            return self.score(*_select(rows, x, actions, valid, masked))[0]

        return torch.cat([x.new_empty(0), *parallel_map(score, chunks)])

    def _chunks(self, count: int) -> list[Tensor]:
        """The rows ``0 .. count - 1`` in chunks; the same for any number of threads."""
        fitting = CHUNK_FEATURES // (self.length * self.feature_dim * self.masks)
        rows = torch.arange(count, device=self.device)
        return split_rows(rows, min(max(fitting, 64), CHUNK_WINDOWS))

    def _read(self, window: Window) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Raw features, the features that the networks see, actions and usable steps."""
        window = outside_inference(window)
        raw = read_features(
            window, self.length, self.feature_dim or None, self.encoder, self.device
        )
        valid, actions = window.valid.to(self.device), None
        if self.uses_actions:
            actions = read_actions(window, self.action_dim, self.device)
        if self.categorical:
            check_one_hot(raw[valid])
        if not self.feature_dim:
            self.action_dim = None if actions is None else actions.shape[2]
            self.create_networks(raw.shape[2])
        if self.discrete_obs is None:  # neither an argument nor a space: integers are discrete
            self.discrete_obs = window.features.ndim == 2
        x = raw
        if self.statistics is not None and not self.categorical:
            statistics = self.statistics
            if statistics.count == 0:  # before the first step: the statistics of this batch
                statistics = RunningMeanStd(statistics.shape, self.device)
                statistics.update_distributed(raw[valid])
            x = statistics.normalize(raw, FEATURE_CLIP)
        return raw, x, actions, self.usable_steps(valid)

    def _copied_generator(self) -> Generator:
        """A generator with the state of ours."""
        generator = Generator(self.device)
        generator.set_state(self.generator.get_state())
        return generator

    @isolated
    def create_networks(self, feature_dim: int) -> None:
        """Creates networks, optimizer and statistics; the weights depend on ``seed`` only."""
        mask = self.mask
        if isinstance(mask, FeatureMask):
            mask = dataclasses.replace(mask, feature_dim=feature_dim)
        mask.require(self.length)
        # On the CPU first: the same seed gives the same weights on every device.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(self.seed)
            network = self.build(feature_dim).to(self.device, torch.float32)
        self.mask, self.network, self.feature_dim = mask, network, feature_dim
        self.statistics = RunningMeanStd((feature_dim,), self.device) if self.normalize else None
        self.reset_optimizer()

    def reset_optimizer(self) -> None:
        """Creates a new Adam for the parameters that require a gradient."""
        self.trainable = {k: p for k, p in self.network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.Adam(self.trainable.values(), lr=self.lr, fused=True)

    @isolated
    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, statistics, generator and counters."""
        state: dict[str, Any] = {
            "kind": type(self).__name__,
            "feature_dim": self.feature_dim,
            "length": self.length,
            "steps": self.steps,
            "discrete_obs": self.discrete_obs if self.steps else None,
            "generator": self.generator.get_state(),
            **self.extra_state(),
        }
        if self.feature_dim:
            state["network"] = {k: v.clone() for k, v in self.network.state_dict().items()}
            state["optimizer"] = optimizer_state(self.optimizer, self.trainable)
            if self.statistics is not None:
                state["statistics"] = self.statistics.state_dict()
        return state

    @isolated
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        loaded = copy.deepcopy(self, {id(self.encoder): self.encoder})
        try:
            loaded._load(state)
        except ValueError:
            raise
        except Exception as error:
            kind = type(self).__name__
            raise ValueError(f"this is not the state of a {kind!r}: {error!r}.") from error
        vars(self).update(vars(loaded), lock=self.lock)

    def _load(self, state: Mapping[str, Any]) -> None:
        kind = type(self).__name__
        if state.get("kind") != kind:
            raise ValueError(f"this is the state of a {state.get('kind')!r}, not of a {kind!r}.")
        for name in ("length", "feature_dim", "action_dim"):
            ours, theirs = getattr(self, name), state.get(name)
            if ours and theirs and ours != theirs:
                raise ValueError(
                    f"the state was saved with {name}={theirs}, this {kind} has {ours}."
                )
        if state["feature_dim"] and self.normalize != ("statistics" in state):
            found = "no statistics" if self.normalize else "statistics of features"
            raise ValueError(
                f"the state has {found}, but this {kind} has normalize={self.normalize}."
            )
        if (discrete_obs := state.get("discrete_obs")) not in (None, True, False):
            raise ValueError(
                f"the state's discrete_obs is {discrete_obs!r}; expected true, false or null."
            )
        if self.uses_actions:
            self.action_dim = self.action_dim or state.get("action_dim")
        if state["feature_dim"]:
            if not self.feature_dim:
                self.create_networks(state["feature_dim"])
            require_same(self.network.state_dict(), state["network"], f"this {kind}")
            check_optimizer(self.trainable, state["optimizer"])
            if self.statistics is not None:
                self.statistics.load_state_dict(state["statistics"])
            self.network.load_state_dict(state["network"])
            load_optimizer(self.optimizer, self.trainable, state["optimizer"])
        else:
            self.feature_dim = 0  # saved before its first window, which creates the networks
        self.load_extra(state)
        if discrete_obs is not None:
            self.discrete_obs = discrete_obs
        self.steps = int(state["steps"])
        load_generator(self.generator, state["generator"])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # As bytes: a process that torch.multiprocessing starts would share the memory of tensors.
        content = io.BytesIO()
        pickler = pickle.Pickler(content)
        plain = object.__new__, (type(self),), vars(self)  # the encoder may be a method of ours
        pickler.dispatch_table = {**copyreg.dispatch_table, type(self): lambda _: plain}
        pickler.dump(self)
        return pickle.loads, (content.getvalue(),)


def _select(
    rows: Tensor, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Some windows of a batch; ``masked`` is ``(K, B, ...)``."""
    return x[rows], None if actions is None else actions[rows], valid[rows], masked[:, rows]
