"""Who makes tensors without saying where, or reads them back? Without a GPU nothing else tells."""

import traceback
from collections import Counter

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

MAKERS = {
    getattr(torch, name)
    for name in [
        "arange",
        "empty",
        "eye",
        "full",
        "linspace",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "tensor",
        "zeros",
    ]
}


class Placeless(TorchFunctionMode):
    """Counts the lines of mimex that make tensors without naming a device.

    A number or two, on their way to a device, may be made on the CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: Counter[str] = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = function(*args, **kwargs)
        if function in MAKERS and kwargs.get("device") is None and made.numel() > 2:
            frame = traceback.extract_stack()[-2]
            if "/mimex/" in frame.filename:
                place = frame.filename.rpartition("/mimex/")[2]
                self.lines[f"{place}: {frame.line}"] += 1
        return made


class Crossings(TorchFunctionMode):
    """Notes what goes between PyTorch and NumPy, and to the CPU, among arrays of so many rows.

    Attributes:
        shapes: Of each, in order.

    Args:
        rows: The first dimension of what counts.
    """

    READERS = frozenset({"numpy", "__array__", "tolist", "cpu"})

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.shapes = rows, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        reads = function.__name__ in self.READERS
        for value in [*args, *(kwargs or {}).values()]:
            crosses = isinstance(value, np.ndarray) or (reads and isinstance(value, torch.Tensor))
            if crosses and value.shape[:1] == (self.rows,):
                self.shapes.append(tuple(value.shape))
        return function(*args, **(kwargs or {}))
