"""Stand-ins for a GPU: without one, nothing else tells where tensors are made, mixed or read."""

import hashlib
import sys

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class MixedDevicesError(RuntimeError):
    """Tensors, or a tensor and a generator, of two devices met in one operation."""


class CudaGenerator(torch.Generator):
    """Draws on the CPU, but is of the other device, and its state is of another kind.

    CUDA's states have 16 bytes; ours are digests, by which we remember the state itself.
    """

    device = CUDA
    states: dict[bytes, torch.Tensor] = {}  # noqa: RUF012 (of all)

    def __new__(cls, device=CPU):
        return super().__new__(cls) if torch.device(device) == CUDA else torch.Generator(device)

    def get_state(self):
        state = super().get_state()
        digest = hashlib.md5(state.numpy().tobytes()).digest()
        self.states[digest] = state
        return torch.frombuffer(bytearray(digest), dtype=torch.uint8)

    def set_state(self, state):
        if where(state) != CPU:
            raise TypeError("RNG state must be a torch.ByteTensor on the CPU")
        if state.shape != (16,):
            raise RuntimeError("RNG state is wrong size")
        return super().set_state(self.states[state.numpy().tobytes()])

    def __deepcopy__(self, memo):
        copied = CudaGenerator(CUDA)
        copied.set_state(self.get_state())
        return copied


class Cuda(TorchFunctionMode):
    """A "cuda" device that computes on the CPU and keeps to a GPU's rules.

    Within this mode a tensor made on, or moved to, "cuda" is tagged, and so is what is made of it.
    Tensors of both devices, or a generator of the other one, are refused where PyTorch refuses
    them, and a tagged tensor is not given to NumPy. Works in the calling thread alone.

    Use the ``cuda`` fixture of ``conftest.py``, with which the package also finds the device.
    """

    MOVES = frozenset({"to", "cpu", "cuda", "float", "double", "long"})
    TO_NUMPY = frozenset({"numpy", "__array__"})
    ACROSS = frozenset(  # of two devices; a deep copy is given the memo of all others
        {"copy_", "__set__", "_has_compatible_shallow_copy_type", "__deepcopy__"}
    )
    INDEXING = frozenset({"__getitem__", "__setitem__"})  # the index may be on the CPU

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        if function == torch.Tensor.device.__get__:
            return where(args[0])
        if function == torch.Tensor.is_cuda.__get__:
            return where(args[0]) == CUDA
        own = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name in self.TO_NUMPY and where(own) != CPU:
            raise TypeError("can't convert cuda device type tensor to numpy. Use Tensor.cpu()")
        if own is not None and name in self.MOVES:
            return self._moved(function, own, args[1:], kwargs)
        device = torch.device(kwargs.pop("device", None) or self._device_of(name, args, kwargs))
        generator = kwargs.get("generator")
        if generator is not None and generator.device != device:
            raise MixedDevicesError(f"{name} on {device} with a generator of {generator.device}")
        inputs = [id(tensor) for tensor in _tensors((args, kwargs))]
        made = function(*args, **kwargs)
        made = list(made) if name == "__iter__" else made
        for tensor in _tensors(made):
            if id(tensor) not in inputs:
                tensor._device = device
        if name == "__set__" and len(args) > 1 and isinstance(args[1], torch.Tensor):
            own._device = where(args[1])
        return iter(made) if name == "__iter__" else made

    def _device_of(self, name, args, kwargs):
        """Where the result of an operation on these is."""
        found = list(_tensors((args, kwargs)))
        if not found:
            return CPU
        if name in self.ACROSS:
            return where(found[0])
        if name in self.INDEXING:
            others = {where(t) for t in _tensors(args[1:])}
            if where(args[0]) == CPU and CUDA in others:
                raise MixedDevicesError(f"{name} of a tensor on the cpu with one on cuda")
            return where(args[0])
        devices = {where(tensor) for tensor in found if tensor.ndim}  # scalars go anywhere
        if len(devices) > 1:
            shapes = [(str(where(tensor)), tuple(tensor.shape)) for tensor in found]
            raise MixedDevicesError(f"{name} of tensors on two devices: {shapes}")
        return devices.pop() if devices else max(map(where, found), key=lambda d: d == CUDA)

    @staticmethod
    def _moved(function, tensor, args, kwargs):
        """A tensor on another device or of another type; a copy wherever the device changes."""
        name, device = function.__name__, kwargs.pop("device", None)
        for value in args:
            if isinstance(value, torch.Tensor):
                device, kwargs["dtype"] = where(value), value.dtype
            elif isinstance(value, torch.dtype):
                kwargs["dtype"] = value
            elif isinstance(value, torch.device | str):
                device = value
        device = torch.device(name if name in ("cpu", "cuda") else device or where(tensor))
        made = tensor.to(**kwargs) if name == "to" else tensor
        if name not in ("to", "cpu", "cuda"):
            made = function(tensor)
        if device != where(tensor) and made is tensor:
            made = tensor.clone()
        if made is not tensor:
            made._device = device
        return made


def where(tensor):
    """The device that a tensor is taken to be on."""
    return getattr(tensor, "_device", CPU)


def stand_in_for_cuda(monkeypatch):
    """Lets the package find a device "cuda" and make generators for it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for name, module in list(sys.modules.items()):
        if name.startswith("mimex") and getattr(module, "Generator", None) is torch.Generator:
            monkeypatch.setattr(module, "Generator", CudaGenerator)
    copied = torch.nn.Parameter.__deepcopy__  # which a mode does not see

    def deepcopy(self, memo):
        made = copied(self, memo)
        made._device = where(self)
        return made

    monkeypatch.setattr(torch.nn.Parameter, "__deepcopy__", deepcopy)


def _tensors(values):
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)


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
