"""The state of a run over several processes.

A checkpoint has the state of rank 0, and under ``RANKS`` the differences of each other process:
environments, random numbers, windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mimex.nn import processes
from mimex.train import checkpoint
from mimex.train.packing import checksum, pack

RANKS = "ranks"
"""In a checkpoint, for each process but the first: paths in the state, and their values."""

OWN = (
    ("agent", "generator"),
    ("agent", "algorithm", "generator"),
    ("agent", "bonus", "generator"),
    ("agent", "windows"),
    ("agent", "history"),
    ("restarts",),
    ("callbacks", "episodes", "returns"),
    ("callbacks", "episodes", "steps"),
)
"""State that cannot be restored with another number of processes: random numbers, which must
differ, and what is kept per environment."""


def gathered(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the run, from that of each process; all have to call it."""
    if processes.size() == 1:
        return dict(state)
    first = broadcast(state if processes.rank() == 0 else None)
    differences = checkpoint.to_bytes({RANKS: [[*one] for one in _differing(state, first)]})
    found = [checkpoint.from_bytes(one)[RANKS] for one in processes.all_gather_bytes(differences)]
    return {**state, RANKS: found[1:]}


def broadcast(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """The state of rank 0, in all processes; the others pass None."""
    content = b"" if state is None else checkpoint.to_bytes(state)
    return checkpoint.from_bytes(processes.broadcast_bytes(content))


def size_of(state: Mapping[str, Any]) -> int:
    """The number of processes of the run."""
    return 1 + len(state.get(RANKS, ()))


def own(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """The state of this process, from that of a run.

    A run of another number of processes gives what is the same in all, and no environments: new
    episodes have to begin.

    Args:
        state: Of the run.
        fresh: Agent and callbacks of this process before anything was loaded.
    """
    found = {name: value for name, value in state.items() if name != RANKS}
    if size_of(state) == processes.size():
        for path, value in state[RANKS][processes.rank() - 1] if processes.rank() else ():
            found = _with(found, path, value)
        return found
    for path in OWN:
        if (value := _at(fresh, path)) is not None:
            found = _with(found, path, value)
    return found | {"environment": None, "observation": None}


def _differing(
    state: Any, first: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[list[str], Any]]:
    """Paths to, and values of, what is not the same bit for bit."""
    both = isinstance(state, Mapping) and isinstance(first, Mapping)
    if both and state and state.keys() == first.keys():
        for name, value in state.items():
            yield from _differing(value, first[name], (*path, name))
    elif checksum(*pack({"": state})) != checksum(*pack({"": first})):
        yield [*path], state


def _at(state: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        state = None if state is None else state.get(name)
    return state


def _with(state: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The state with another value there."""
    name, *rest = path
    return {**state, name: _with(state[name], tuple(rest), value) if rest else value}
