"""Trained policies in small files, usable with NumPy alone.

A policy is a multilayer perceptron from raw observations to environment actions: observation
normalization and action clipping are part of it, critic and optimizer are not. On disk it is a
safetensors file with the arrays and, beside it, a model card in JSON with everything else. The
package ships some (``names()``); ``mimex export RUN policy.safetensors`` writes that of a run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from mimex.files import read_object, read_own, replacing

Floats = NDArray[np.float32]

FOLDER = Path(__file__).parent / "pretrained"
"""The shipped policies."""

SUFFIX = ".safetensors"

OBSERVATION = "observation"
"""Name of the single input if observations are not a Dict."""

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _elu(x: Floats, alpha: float = 1.0) -> Floats:
    return np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "selu": lambda x: np.float32(SELU_SCALE) * _elu(x, SELU_ALPHA),
    "elu": _elu,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


@dataclass(frozen=True, eq=False)
class MLPPolicy:
    """A deterministic policy. Call it with one observation, or with a batch of them.

    Attributes:
        inputs: Shape of each input: by key of a Dict observation, in its order, or only
            ``OBSERVATION``.
        mean: ``(D,)``, subtracted from the flattened observation.
        scale: ``(D,)``, the result is multiplied by this.
        clip: Normalized features are clipped to plus and minus this.
        layers: Weight ``(out, in)`` and bias ``(out,)`` of each linear layer.
        activation: Activation function between layers, one of ``ACTIVATIONS``.
        action_shape: Shape of one action, ``()`` if discrete.
        action_dtype: NumPy dtype of an action, by name.
        bounds: ``(2, A)``, lower and upper bounds that -1 and 1 are mapped to; None if unbounded.
        first_action: Lowest discrete action; None if actions are continuous.
        card: The model card, with task, training steps and success rate; empty if unknown.
    """

    inputs: Mapping[str, tuple[int, ...]]
    mean: Floats
    scale: Floats
    clip: float
    layers: tuple[tuple[Floats, Floats], ...]
    activation: str
    action_shape: tuple[int, ...]
    action_dtype: str
    bounds: Floats | None = None
    first_action: int | None = None
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = (self.mean, self.scale, *(array for layer in self.layers for array in layer))
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("the policy has weights that are not finite: use another checkpoint")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation is {self.activation!r}, but must be one of {', '.join(ACTIVATIONS)}"
            )
        width = sum(math.prod(shape) for shape in self.inputs.values())
        shapes = [self.mean.shape, self.scale.shape]
        expected: list[tuple[int, ...]] = [(width,), (width,)]
        for weight, bias in self.layers:
            shapes += [weight.shape, bias.shape]
            expected += [(len(bias), width), (len(bias),)]
            width = len(bias)
        if self.bounds is not None:
            shapes, expected = [*shapes, self.bounds.shape], [*expected, (2, width)]
        if self.first_action is None:
            shapes, expected = [*shapes, (width,)], [*expected, (math.prod(self.action_shape),)]
        if shapes != expected:
            raise ValueError(f"the policy's arrays have shapes {shapes}, but expected {expected}")

    def __call__(self, observation: Any) -> NDArray[Any]:
        """The action for one observation, or the actions for a batch ``(B, ...)``."""
        parts = observation if isinstance(observation, Mapping) else {OBSERVATION: observation}
        if missing := [name for name in self.inputs if name not in parts]:
            raise ValueError(
                f"the observation has {', '.join(parts)}, but the policy takes "
                f"{', '.join(self.inputs)}: {', '.join(missing)} is missing"
            )
        arrays = {name: np.asarray(parts[name], np.float32) for name in self.inputs}
        name, shape = next(iter(self.inputs.items()))
        batched = arrays[name].ndim > len(shape)
        rows = len(arrays[name]) if batched else 1
        for name, shape in self.inputs.items():
            if arrays[name].shape != ((rows, *shape) if batched else shape):
                raise ValueError(
                    f"{name} has shape {arrays[name].shape}, but the policy takes {shape}, or a "
                    f"batch of such, {('B', *shape)}: is the environment that of its model card?"
                )
        flat = np.concatenate([x.reshape(rows, -1) for x in arrays.values()], axis=1)
        actions = self._actions(flat)
        return actions if batched else actions[0]

    def _actions(self, x: Floats) -> NDArray[Any]:
        x = np.clip((x - self.mean) * self.scale, -self.clip, self.clip)
        activation = ACTIVATIONS[self.activation]
        *hidden, (last_weight, last_bias) = self.layers
        for weight, bias in hidden:
            x = activation(x @ weight.T + bias)
        x = x @ last_weight.T + last_bias
        dtype = np.dtype(self.action_dtype)
        if self.first_action is not None:
            chosen: NDArray[Any] = x.argmax(1) + self.first_action
            return chosen.astype(dtype)
        if self.bounds is not None:
            low, high = self.bounds
            x = low + (np.clip(x, -1, 1) + 1) * np.float32(0.5) * (high - low)
        return x.reshape(len(x), *self.action_shape).astype(dtype, copy=False)

    def policy(
        self, observation: Any, *, deterministic: bool = True, step: int = 0
    ) -> NDArray[Any]:
        """Actions for a batch of observations (``contracts.Policy``)."""
        if not deterministic:
            raise ValueError(
                "a policy file has no exploration noise, only the mean action: leave out --noise, "
                "or evaluate the run folder"
            )
        return self(observation)

    def rounded(self) -> MLPPolicy:
        """Rounds the weights to float16, as ``save`` does."""
        with np.errstate(over="ignore"):  # __post_init__ raises for infinite weights
            layers = [(w.astype(np.float16).astype(np.float32), b) for w, b in self.layers]
        return replace(self, layers=tuple(layers))

    def save(self, path: Path) -> None:
        """Writes the policy to ``path``, and its card to the same name with the suffix .json.

        Weights are stored as float16: the loaded policy equals ``rounded()``.
        """
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "scale": self.scale}
        for depth, (weight, bias) in enumerate(self.rounded().layers):
            arrays |= {f"{depth}.weight": weight.astype(np.float16), f"{depth}.bias": bias}
        if self.bounds is not None:
            arrays["bounds"] = self.bounds
        content = safetensors.numpy.save(arrays)
        network = {
            "inputs": {name: list(shape) for name, shape in self.inputs.items()},
            "clip": self.clip,
            "activation": self.activation,
            "action_shape": list(self.action_shape),
            "action_dtype": self.action_dtype,
            "first_action": self.first_action,
        }
        card = {**self.card, "network": network, "sha256": hashlib.sha256(content).hexdigest()}
        # The card is written last: after a kill between the two, the checksum does not match.
        for file, data in ((path, content), (card_path(path), _text(card).encode())):
            with replacing(file) as aside:
                aside.write_bytes(data)


def card_path(path: Path) -> Path:
    """Path of a policy's model card."""
    return path.with_suffix(".json")


def names() -> tuple[str, ...]:
    """Names of the shipped policies: the task, with ``-REWARD`` unless trained on dense reward."""
    tasks = FOLDER.glob(f"[A-Z]*{SUFFIX}")  # lower case: the image encoder
    return tuple(sorted(path.stem for path in tasks))


def load_policy(name: str | Path) -> MLPPolicy:
    """Loads a trained policy: a shipped one by name, or your own by its file.

    Args:
        name: One of ``mimex.policies.names()``, such as "FrankaReach", or the path of a
            .safetensors file of ``mimex export``, with its model card in the same folder.

    Returns:
        The policy, a function of an observation. ``.card`` is its model card.
    """
    if str(name) in names():
        return _load(FOLDER / f"{name}{SUFFIX}")
    if Path(name).suffix != SUFFIX:
        raise ValueError(
            f"there is no pretrained policy {str(name)!r}, only {', '.join(names())}: train one "
            f"(mimex train), or pass the path of a {SUFFIX} file"
        )
    return _load(Path(name))


def _load(path: Path) -> MLPPolicy:
    card, content = read_object(card_path(path)), read_own(path)
    if card.get("sha256") != hashlib.sha256(content).hexdigest():
        raise ValueError(
            f"the sha256 of {path} differs from that in {card_path(path)}: export the policy again"
        )
    try:
        arrays = {
            key: value.astype(np.float32) for key, value in safetensors.numpy.load(content).items()
        }
        network = card["network"]
        depths = range(sum(key.endswith(".weight") for key in arrays))
        return MLPPolicy(
            inputs={key: tuple(shape) for key, shape in network["inputs"].items()},
            mean=arrays["mean"],
            scale=arrays["scale"],
            clip=float(network["clip"]),
            layers=tuple((arrays[f"{k}.weight"], arrays[f"{k}.bias"]) for k in depths),
            activation=network["activation"],
            action_shape=tuple(network["action_shape"]),
            action_dtype=np.dtype(network["action_dtype"]).name,
            bounds=arrays.get("bounds"),
            first_action=network["first_action"],
            card=card,
        )
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise ValueError(f"{path} is not a policy file ({error}): export it again") from error


def _text(card: Mapping[str, Any]) -> str:
    return json.dumps(card, indent=2) + "\n"
