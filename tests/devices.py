"""Who makes tensors without saying where? On a machine without a GPU nothing else would tell."""

import traceback
from collections import Counter

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
