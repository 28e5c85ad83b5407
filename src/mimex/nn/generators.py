"""Random numbers that continue from a checkpoint, also on a device of another kind."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Generator, Tensor


def load_generator(generator: Generator, saved: Any) -> None:
    """Continues from a state that ``get_state`` gave; on a misfit changes nothing.

    The state of a generator of another kind of device (CPU, CUDA) cannot be continued: the random
    numbers then begin anew, with a seed that follows from that state.
    """
    if not isinstance(saved, Tensor) or saved.dtype != torch.uint8 or saved.ndim != 1:
        found = f"shape {tuple(saved.shape)}" if isinstance(saved, Tensor) else repr(saved)
        raise ValueError(f"the state's generator has {found}; expected bytes: it is damaged.")
    saved = saved.cpu()
    if saved.shape == generator.get_state().shape:
        generator.set_state(saved)
    else:
        digest = hashlib.sha256(saved.numpy().tobytes()).digest()
        generator.manual_seed(int.from_bytes(digest[:4], "big"))
