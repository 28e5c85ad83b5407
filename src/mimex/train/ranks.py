"""Checkpoints of runs with several processes.

A checkpoint has the state of rank 0, and under ``RANKS`` what differs in each other process:
environments, random number generators, windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mimex.nn import processes
from mimex.train import checkpoint
from mimex.train.packing import checksum, pack

RANKS = "ranks"
"""Key of a checkpoint: for each rank above 0, a list of paths in the state and their values."""

PER_PROCESS = (
    ("agent", "generator"),
    ("agent", "algorithm", "generator"),
    ("agent", "bonus", "generator"),
    ("agent", "windows"),
    ("agent", "history"),
    ("restarts",),
    ("callbacks", "episodes", "returns"),
    ("callbacks", "episodes", "steps"),
)
"""State that a run resumed with another number of processes cannot restore."""


def gather_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Combines the states of all processes; a collective operation."""
    if processes.size() == 1:
        return dict(state)
    first = broadcast(state if processes.rank() == 0 else None)
    differences = checkpoint.to_bytes({RANKS: [[*one] for one in _differences(state, first)]})
    found = [checkpoint.from_bytes(one)[RANKS] for one in processes.all_gather_bytes(differences)]
    return {**state, RANKS: found[1:]}


def broadcast(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the state of rank 0 in all processes; the others pass None."""
    content = b"" if state is None else checkpoint.to_bytes(state)
    return checkpoint.from_bytes(processes.broadcast_bytes(content))


def num_processes(state: Mapping[str, Any]) -> int:
    """Returns the number of processes that saved a state."""
    return 1 + len(state.get(RANKS, ()))


def local_state(state: Mapping[str, Any], initial: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of this process.

    With another number of processes than at the save, it has no environments: new episodes begin.

    Args:
        state: State of the run.
        initial: State of this process before loading.
    """
    local = {name: value for name, value in state.items() if name != RANKS}
    if num_processes(state) == processes.size():
        for path, own in state[RANKS][processes.rank() - 1] if processes.rank() else ():
            local = _replace(local, path, own)
        return local
    for path in PER_PROCESS:
        value: Any = initial
        for name in path:
            value = None if value is None else value.get(name)
        if value is not None:
            local = _replace(local, path, value)
    return local | {"environment": None, "observation": None}


def _differences(
    state: Any, first: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[list[str], Any]]:
    """Yields paths and values that are not bitwise equal to those of the first process."""
    both = isinstance(state, Mapping) and isinstance(first, Mapping)
    if both and state and state.keys() == first.keys():
        for name, value in state.items():
            yield from _differences(value, first[name], (*path, name))
    elif checksum(*pack({"": state})) != checksum(*pack({"": first})):
        yield [*path], state


def _replace(state: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Returns a copy of a nested state with another value at a path."""
    name, *rest = path
    return {**state, name: _replace(state[name], tuple(rest), value) if rest else value}
