"""Saving and loading: what does not fit is refused, and a call that fails changes nothing."""

from __future__ import annotations

import copy
import dataclasses
import io
import math
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypedDict

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.inputs import Encoder, check_widths, in_own_mode
from mimex.bonus.masks import FeatureMask, MaskDistribution
from mimex.nn.generators import load_generator
from mimex.nn.running import RunningMeanStd

ALWAYS_SAVED = ("generator", "steps", "length", "feature_dim")


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The moments of each parameter by its name; empty before the first step."""
    return {
        name: {key: value.clone() for key, value in optimizer.state[parameter].items()}
        for name, parameter in parameters.items()
        if parameter in optimizer.state
    }


def check_optimizer(parameters: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Refuses moments of Adam that are not of these parameters."""
    for name, moments in state.items():
        shape = parameters[name]
        expected = {"step": shape.new_zeros(()), "exp_avg": shape, "exp_avg_sq": shape}
        require_same(expected, moments, f"the optimizer of {name}")


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Puts the moments of ``optimizer_state`` back, each where its parameter lives.

    The counter of steps stays on the CPU, unless the optimizer works on the device alone.
    """
    groups = optimizer.param_groups
    on_device = any(group.get("fused") or group.get("capturable") for group in groups)
    optimizer.state.clear()
    for name, moments in state.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            key: value.to("cpu" if key == "step" and not on_device else parameter.device, copy=True)
            for key, value in moments.items()
        }


def require_same(expected: Mapping[str, Tensor], found: Mapping[str, Any], what: str) -> None:
    """Refuses a state whose names or shapes differ from ours, naming the first differences.

    Numbers that are not finite are refused, too.
    """
    differences = [f"{name} is missing" for name in expected if name not in found]
    differences += [f"{name} is unknown" for name in found if name not in expected]
    for name, value in expected.items():
        other = found.get(name, value)
        if not isinstance(other, Tensor):
            differences.append(f"{name} is a {type(other).__name__}, expected an array")
        elif value.shape != other.shape:
            differences.append(
                f"{name} has shape {tuple(other.shape)}, expected {tuple(value.shape)}"
            )
        elif not bool(other.isfinite().all()):
            differences.append(f"{name} has numbers that are not finite")
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        raise ValueError(f"the state does not fit {what}: {'; '.join(differences[:3])}{more}.")


@contextmanager
def single_precision() -> Iterator[None]:
    """In this block new floating-point tensors are float32, whatever the default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Shared(TypedDict, total=False):
    """What every method takes beside its own arguments; ``Resumable`` explains it."""

    encoder: Encoder | None
    normalise: bool
    device: torch.device | str
    seed: int


class Resumable(ABC):
    """Networks that learn from windows: made once the features are known, saved, and continued.

    Attributes:
        feature_dim: Numbers a step; 0 until the first window tells, and then there is no network.
        steps: Optimizer steps taken.
        trainable: Parameters by name.
        statistics: Of the features, where they are normalised.
        discrete_obs: Whether observations are discrete, for methods that treat them differently;
            None until it is known.

    Args:
        feature_dim: Numbers a step; taken from the first window when None.
        length: Steps a window.
        mask: What is hidden.
        masks: Masks a window, K; their errors are averaged. All K share one optimizer step.
        lr: Learning rate of Adam.
        uses_actions: Whether it looks at actions; it does if ``action_dim`` is given.
        action_dim: Numbers an action, or number of discrete actions, where actions are used; taken
            from the first window, or from the wrapped environment, when None.
        encoder: Turns raw observations into features; needed for images.
        normalise: Feed features normalised by running statistics, clipped to +-5. Before the first
            ``learn`` a batch is normalised by its own statistics.
        device: Where the networks live.
        seed: Of the initial weights and the masks.
    """

    discrete_obs: bool | None = False
    lock: threading.RLock  # whoever holds it may use the networks
    statistics: RunningMeanStd | None
    no_settings: ClassVar[tuple[str, ...]] = ("length", "device", "seed")
    """Parameters that are no settings of a run: as those that may be None, others choose them."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if "normalize" in kwargs:
            raise TypeError(f"{cls.__name__} has no normalize=: it is spelt normalise=.")
        made = super().__new__(cls)
        made.lock = threading.RLock()
        return made

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
        normalise: bool = False,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        check_widths(length=length, masks=masks, feature_dim=feature_dim, action_dim=action_dim)
        if not 0 < lr < math.inf:
            raise ValueError(f"lr={lr} must be positive and finite.")
        if feature_dim is not None and uses_actions and action_dim is None:
            raise ValueError("feature_dim is given and action_dim is not: give both or neither.")
        mask.require(length, masks)
        self.length, self.masks, self.lr, self.seed = length, masks, lr, seed
        self.mask, self.action_dim, self.encoder = mask, action_dim, encoder
        self.uses_actions = uses_actions or action_dim is not None
        self.device = torch.device(device)
        self.steps = 0
        self.feature_dim = 0
        self.normalise = normalise
        self.generator = Generator(self.device).manual_seed(seed)
        if feature_dim is not None:
            self.start(feature_dim)

    @property
    def codes(self) -> bool:
        """Whether features are treated as one-hot codes; those of an encoder never are."""
        return bool(self.discrete_obs) and self.encoder is None

    @abstractmethod
    def build(self, feature_dim: int) -> nn.Module:
        """Makes the networks; parameters that do not require a gradient are not trained."""

    @in_own_mode
    def start(self, feature_dim: int) -> None:
        """Makes networks, optimizer and statistics, with random numbers of our own seed."""
        mask = self.mask
        if isinstance(mask, FeatureMask):
            mask = dataclasses.replace(mask, feature_dim=feature_dim)
        mask.require(self.length, self.masks)
        # On the CPU first: the same seed gives the same weights on every device.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"), single_precision():
            torch.manual_seed(self.seed)
            try:
                network = self.build(feature_dim).to(self.device)
            except (RuntimeError, TypeError, OverflowError) as error:
                why = str(error).partition("\n")[0]  # a trace of C++ may follow
                raise ValueError(
                    f"the networks of this {type(self).__name__} cannot be made for "
                    f"feature_dim={feature_dim}: {why}"
                ) from error
        self.mask, self.network = mask, network
        self._start_optimizer()
        self.statistics = RunningMeanStd((feature_dim,), self.device) if self.normalise else None
        self.feature_dim = feature_dim

    def _start_optimizer(self) -> None:
        self.trainable = {k: p for k, p in self.network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.Adam(self.trainable.values(), lr=self.lr, fused=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a copy of its own, where multiprocessing would share the networks' memory."""
        with self.lock:
            content = io.BytesIO()
            _OwnPickler(content, self).dump(self._but_the_lock())
        return _unpickled, (type(self), content.getvalue())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self)] = made = type(self).__new__(type(self))
        with self.lock:
            vars(made).update(copy.deepcopy(self._but_the_lock(), memo))
        return made

    def _but_the_lock(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}

    @in_own_mode
    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, statistics, generator, counters, and what a method adds."""
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

    def extra_state(self) -> dict[str, Any]:
        """What a method saves beside its networks, under names of its own."""
        return {"action_dim": self.action_dim} if self.uses_actions else {}

    def load_extra(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (most have none)
        """Puts what ``extra_state`` gave back, once the networks are loaded."""

    @in_own_mode
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        held, before = dict(vars(self)), self.state_dict()
        try:
            self._load(state)
        except Exception as error:
            vars(self).clear()  # what was made for the state, where there was nothing before
            vars(self).update(held)
            self._load(before)
            if isinstance(error, ValueError):
                raise
            kind = type(self).__name__
            raise ValueError(f"this is no state of a {kind!r}: {error!r}.") from error

    def _load(self, state: Mapping[str, Any]) -> None:
        kind = type(self).__name__
        saved = state.get("kind")
        if saved != kind:
            raise ValueError(f"this is the state of a {saved!r}, not of a {kind!r}.")
        if missing := [name for name in ALWAYS_SAVED if name not in state]:
            raise ValueError(f"the state has no {', '.join(missing)}: it is damaged.")
        for name in ("length", "feature_dim", "action_dim"):
            ours, theirs = getattr(self, name), state.get(name)
            if ours and theirs and ours != theirs:
                raise ValueError(
                    f"the state was saved with {name}={theirs}, this {kind} has {ours}."
                )
        discrete_obs = state.get("discrete_obs", state.get("one_hot"))  # as 0.2 saved it
        if discrete_obs not in (None, True, False):
            raise ValueError(
                f"the state's discrete_obs is {discrete_obs!r}; expected true, false or null."
            )
        if state["feature_dim"] and self.normalise != ("statistics" in state):
            found = "no statistics" if self.normalise else "statistics of features"
            raise ValueError(
                f"the state has {found}, but this {kind} has normalise={self.normalise}."
            )
        if self.uses_actions:
            self.action_dim = self.action_dim or state.get("action_dim")
        if state["feature_dim"]:
            if not self.feature_dim:
                self.start(state["feature_dim"])
            require_same(self.network.state_dict(), state["network"], f"this {kind}")
            check_optimizer(self.trainable, state["optimizer"])
            if self.statistics is not None:
                self.statistics.load_state_dict(state["statistics"])
            self.network.load_state_dict(state["network"])
            load_optimizer(self.optimizer, self.trainable, state["optimizer"])
        else:
            self.feature_dim = 0  # it had seen nothing yet: the next window builds the networks
        self.load_extra(state)
        if discrete_obs is not None:
            self.discrete_obs = discrete_obs
        self.steps = int(state["steps"])
        load_generator(self.generator, state["generator"])


class _OwnPickler(pickle.Pickler):
    """Pickles what an object holds, and the object itself (an encoder may be its method) by name.

    Args:
        content: Is written to.
        owner: The object.
    """

    def __init__(self, content: io.BytesIO, owner: Any) -> None:
        super().__init__(content)
        self._owner = owner

    def persistent_id(self, obj: Any) -> str | None:
        return "owner" if obj is self._owner else None


class _OwnUnpickler(pickle.Unpickler):
    def __init__(self, content: bytes, owner: Any) -> None:
        super().__init__(io.BytesIO(content))
        self._owner = owner

    def persistent_load(self, pid: Any) -> Any:
        return self._owner


def _unpickled(kind: type[Resumable], content: bytes) -> Resumable:
    """What ``__reduce__`` of a bonus pickled."""
    made = kind.__new__(kind)
    vars(made).update(_OwnUnpickler(content, made).load())
    return made
