"""Conversion of nested states to JSON and tensors, and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

DTYPES = frozenset(
    {torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)
"""Data types that both PyTorch and safetensors support."""


def pack(state: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """Converts a state to JSON values, and tensors that are named by their path in the state.

    Every JSON object has one key, its type, which cannot be confused with a key of the state.
    """
    tensors: dict[str, Tensor] = {}
    return _pack(state, "", tensors), tensors


def unpack(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Inverts ``pack``.

    Raises:
        ValueError, KeyError, TypeError: If the arguments are not a result of ``pack``.
    """
    if isinstance(node, list):
        return [unpack(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    [(kind, content)] = node.items()
    match kind:
        case "dict":
            return {key: unpack(item, tensors) for key, item in content.items()}
        case "tuple":
            return tuple(unpack(content, tensors))
        case "float":
            return float(content)
        case "tensor":
            return tensors[content]
        case "array":
            return tensors[content].numpy()
        case "scalar":
            return tensors[content].numpy()[()]
    raise ValueError(f"unknown kind {kind!r}")


def checksum(structure: Any, tensors: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 of the JSON and of every tensor's name, type, shape and data."""
    digest = hashlib.sha256(json.dumps(structure).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is list:
        return [_pack(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": _pack(list(value), name, tensors)}
    if isinstance(value, Mapping):
        return {"dict": _pack_items(value, name, tensors)}
    if isinstance(value, Tensor):
        tensors[name] = _stored(value, name)
        return {"tensor": name}
    if type(value) is np.ndarray or isinstance(value, np.generic):
        try:
            tensor = torch.from_numpy(np.array(value))
        except (TypeError, ValueError) as error:
            raise _unsupported(name, f"an array of dtype {value.dtype.str!r}") from error
        tensors[name] = _stored(tensor, name)
        return {"array" if type(value) is np.ndarray else "scalar": name}
    raise _unsupported(name, f"a {type(value).__qualname__}")


def _pack_items(items: Mapping[Any, Any], name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    packed = {}
    for key, item in items.items():
        if type(key) is not str:
            raise TypeError(
                f"state{name} has the key {key!r} of type {type(key).__name__}; a checkpoint's "
                "keys must be strings: save it as str(key) and convert it back after loading."
            )
        # Quoted, so that the key "a/b" differs from the key "b" inside "a".
        packed[key] = _pack(item, f"{name}/{quote(key, safe='', errors='surrogatepass')}", tensors)
    return packed


def _stored(tensor: Tensor, name: str) -> Tensor:
    if tensor.dtype not in DTYPES or tensor.layout != torch.strided:
        raise _unsupported(name, f"an array of {tensor.dtype} ({tensor.layout})")
    # Cloned because safetensors refuses tensors that share memory.
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _unsupported(name: str, what: str) -> TypeError:
    return TypeError(
        f"state{name} is {what}, which checkpoints do not support; expected dict, list, tuple, "
        "tensor or NumPy array of numbers in native byte order, int, float, bool, str or None."
    )
