"""Random damage, command lines and calls for ``benchmarks.drills``."""

from __future__ import annotations

import copy
import inspect
import math
import random
import shutil
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from gymnasium import spaces

import mimex
from mimex.bonus import BONUSES, masks
from mimex.bonus.size import AutoencoderSize
from mimex.bonus.state import Shared
from mimex.config import TrainConfig
from mimex.data.tracker import WindowTracker
from mimex.data.windows import RolloutWindows
from mimex.interop.stream import BonusStream, StreamOptions

INTEGERS = (-1, 0, 1, 2, 3, 8, 2**63, 2**64)
FLOATS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-3, 0.5, 0.99, 1.0, 1e308)
TEXTS = ("", "x", "none", "--out", "[/x]", "\x00", "ü", "a b; c", "../x")
CONTENTS = (b"", b"{", b"[]", b"{}", b"3", b"null", b'"x', b"\xff\xfe", b"[" * 5000, bytes(64))

SAME_RUN = ("envs", "steps", "out", "eval", "threads", "world", "vision", "suite", "loop", "track")
"""Settings that could make a drill long; their own tests try them."""


WORDS = {
    "bonus": tuple(BONUSES),
    "agent": ("ppo", "drqv2", "auto"),
    "reward": ("dense", "sparse", "sparser"),
    "observation": ("oracle", "robot", "state"),
    "preset": ("cpu", "paper"),
    "device": ("cpu", "cuda", "auto"),
}
"""What settings mean that any text fits."""


def damage(generator: random.Random, run: Path) -> tuple[Path, str]:
    """Damages one file of a run folder; tells which and how."""
    path = generator.choice(sorted(p for p in run.rglob("*") if p.is_file()))
    content = path.read_bytes()
    at = generator.randrange(len(content) + 1)
    how = generator.choice(["gone", "cut", "flipped", "inserted", "replaced", "folder", "link"])
    path.unlink()
    if how == "cut":
        path.write_bytes(content[:at])
    elif how == "flipped" and content:
        changed = bytearray(content)
        for _ in range(generator.choice([1, 1, 8])):
            changed[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(bytes(changed))
    elif how == "inserted":
        path.write_bytes(content[:at] + generator.choice(CONTENTS) + content[at:])
    elif how == "replaced":
        path.write_bytes(generator.choice(CONTENTS))
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        elsewhere = run.parent / "elsewhere"
        elsewhere.write_bytes(content)
        path.symlink_to(elsewhere)
    if generator.random() < 0.05 and (run / "checkpoints").is_dir():
        shutil.rmtree(run / "checkpoints")
        how += ", checkpoints/ gone"
    return path.relative_to(run), f"{how} at {at}"


def value_of(kind: Any, generator: random.Random) -> Any:
    """A random value of an annotated kind, ordinary or odd."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return generator.choice([*inner, "x"])
    if get_origin(kind) in (Union, types.UnionType):
        return value_of(generator.choice(inner), generator)
    if get_origin(kind) is tuple:
        return tuple(value_of(inner[0], generator) for _ in range(generator.randrange(4)))
    if kind is bool:
        return generator.random() < 0.5
    if kind is int:
        return generator.choice(INTEGERS)
    if kind is float:
        return generator.choice(FLOATS)
    if kind is str:
        return generator.choice(TEXTS)
    return None


def flags(cls: type, above: str = "") -> dict[str, Any]:
    """All flags of a class of settings, with their kinds."""
    found: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for field in fields(cls):
        kind = hints[field.name]
        if not above and field.name in SAME_RUN:
            continue
        if isinstance(kind, type) and is_dataclass(kind):
            found |= flags(kind, f"{above}{field.name}.")
        else:
            found[f"{above}{field.name}".replace("_", "-")] = kind
    return found


def command_line(
    generator: random.Random, tiny: Mapping[str, Sequence[str]], out: Path
) -> tuple[list[str], list[str]]:
    """A random command line, and what of it a refusal may name."""
    paths = [str(out), str(out / "x"), "", ".", "/dev/null", "[/x]"]
    number = str(generator.choice([*INTEGERS[:5], "nan", "x", ""]))
    command = generator.choice(["train"] * 6 + ["eval", "play", "report", "study", "doctor"])
    if command == "train":
        known = flags(TrainConfig)
        chosen = generator.sample(sorted(set(known) - {"task"}), generator.randint(1, 3))
        groups = [name.partition(".")[0] for name in chosen]
        kind = (
            "off" if any(group in ("drqv2", "replay", "off-policy") for group in groups) else "on"
        )
        words = ["train", *tiny[kind], "--steps", "64" if kind == "on" else "1000"]
        words += ["--out", str(out)]
        # A setting of a bonus, or an agent, means something with it only.
        words += [word for group in groups if group in BONUSES for word in ("--bonus", group)]
        given = []
        for name in chosen:
            kinds = (*WORDS.get(name, ()), "x", "")
            value = generator.choice(kinds) if name in WORDS else value_of(known[name], generator)
            group, dot, last = name.rpartition(".")
            given += [name, name.replace("-", "_"), last.replace("-", "_")]
            if isinstance(value, bool):
                words.append(f"--{group}{dot}{'' if value else 'no-'}{last}")
            else:
                several = value if isinstance(value, tuple) else (value,)
                words += [f"--{name}", *map(str, several)]
        return words, given
    if command == "study":
        action = generator.choice(["show", "show", "list", "init", "x"])
        plan = generator.choice(["mask-ratio", "difficulty", *paths])
        setting = f"{generator.choice(sorted(flags(TrainConfig)))}={generator.choice(TEXTS)}"
        words = ["study", action, plan, "--seeds", number, "--set", setting]
        return words, [action, plan, "seeds", "--set", setting.partition("=")[0]]
    if command == "report":
        path = generator.choice(paths)
        words = ["report", path, "--video-mb", number, "-o", str(out / "r.html")]
        return words, [path or "argument", "video-mb"]
    if command == "doctor":
        target = generator.choice([*paths[:3], "x:y", ":", "math:nothing", "mimex:"])
        return ["doctor", target], [target or "argument"]
    path = generator.choice(paths)
    return [command, path, "--episodes", number], [path or "argument", "episodes"]


def _stream(bonus: str = "RND", **settings: Any) -> BonusStream:
    box, made = (
        spaces.Box(-1.0, 1.0, (6,)),
        {"RND": mimex.RND, "E3B": mimex.E3B, "MIMEx": mimex.MIMEx},
    )
    return BonusStream(made.get(bonus, mimex.ICM)(), 2, box, spaces.Discrete(3), **settings)


def _kinds(make: Callable[..., Any]) -> dict[str, Any]:
    """Of all arguments, also of those that are handed on."""
    hints = get_type_hints(make.__init__ if isinstance(make, type) else make)
    return {name: hints[name] for name in inspect.signature(make).parameters if name in hints} | (
        get_type_hints(Shared) if "shared" in hints else {}
    )


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    **{
        made.__name__: (made, _kinds(made))
        for made in (
            *(mimex.MIMEx, mimex.RND, mimex.ICM, mimex.PseudoCount, mimex.Disagreement, mimex.E3B),
            *(mimex.BonusScale, WindowTracker, RolloutWindows),
            *(masks.TimeMask, masks.FeatureMask, AutoencoderSize),
        )
    },
    "BonusStream": (_stream, {"bonus": str} | get_type_hints(StreamOptions)),
}
"""What is called, and the kinds of its arguments."""

_NOT_DRAWN = (
    "return",
    "self",
    "mask",
    "size",
    "encoder",
    "device",
    "seed",
    "lift",
    "shared",
    "view",
)


def api_call(generator: random.Random) -> tuple[str, str | None]:
    """Makes an object with random arguments and uses it; tells the call and what is wrong."""
    name = generator.choice(sorted(CALLS))
    make, kinds = CALLS[name]
    needed = {
        parameter.name
        for parameter in inspect.signature(make).parameters.values()
        if parameter.default is inspect.Parameter.empty
    }
    known = {key: kind for key, kind in kinds.items() if key not in _NOT_DRAWN}
    chosen = {key: value_of(kind, generator) for key, kind in known.items() if key in needed}
    for key in generator.sample(sorted(known), min(len(known), generator.randint(0, 3))):
        chosen[key] = value_of(known[key], generator)
    # What would only be slow.
    chosen = {k: min(v, 2**62) if isinstance(v, int) and v > 8 else v for k, v in chosen.items()}
    what = f"{name}({', '.join(f'{key}={value!r}' for key, value in chosen.items())})"
    try:
        made = make(**chosen)
    except (ValueError, TypeError) as error:
        named = any(key in str(error) for key in kinds) or "ratio" in str(error)
        return what, None if named else f"refused without a name: {error!r}"
    except Exception as error:
        return what, f"raised {error!r}"
    if not hasattr(made, "state_dict"):
        return what, None
    used, wrong = _used(made, generator)
    return f"{what}.{used}", wrong


def _array(generator: random.Random, *shape: int) -> Any:
    """Numbers of some kind, mostly ordinary."""
    numbers = torch.randn(*shape)
    how = generator.choice(
        ["as it is"] * 6 + ["nan", "inf", "large", "integers", "complex", "half"]
    )
    if numbers.numel() and how in ("nan", "inf", "large"):
        numbers.view(-1)[-1] = {"nan": math.nan, "inf": math.inf, "large": 1e38}[how]
    kinds = {"integers": torch.int64, "complex": torch.complex64, "half": torch.float16}
    numbers = numbers.to(kinds.get(how, torch.float32))
    return numbers.numpy() if generator.random() < 0.3 else numbers


def _broken(state: Any, generator: random.Random) -> Any:
    """A state with one of its values, at any depth, left out, replaced, or of another shape."""
    if not isinstance(state, dict) or not state:
        return generator.choice([None, 3, -1, math.nan, "x", torch.zeros(2, 3), {}, []])
    name = generator.choice(sorted(state))
    if isinstance(state[name], torch.Tensor) and generator.random() < 0.5:
        changed = state[name].clone()
        if changed.numel() and changed.is_floating_point():
            changed.view(-1)[0] = math.nan
        return state | {name: changed}
    if generator.random() < 0.2:
        return {key: value for key, value in state.items() if key != name}
    return state | {name: _broken(state[name], generator)}


def _used(made: Any, generator: random.Random) -> tuple[str, str | None]:
    """Uses what was made with random arrays; tells the call and what is wrong."""
    batch, steps, size = (generator.choice(of) for of in ([0, 1, 2, 4], [1, 2, 5], [1, 6, 6, 6]))
    features, flat = _array(generator, batch, steps, size), _array(generator, batch, size)
    flags = torch.zeros(generator.choice([(batch,), (1,), (batch, steps)]), dtype=torch.bool)
    flags = generator.choice([flags, flags, flags.numpy(), flags.float(), flags.tolist()])
    actions = generator.choice([None, _array(generator, batch, 3), [0] * batch, torch.ones(9)])
    window = (features, None, _array(generator, batch, steps, 3))
    real = [flags] if isinstance(made, BonusStream) else []
    calls: dict[str, Callable[[], Any]] = {
        "learn": lambda: made.learn(mimex.Window(*window)),
        "reward": lambda: made.reward(mimex.Window(*window)),
        "follow": lambda: made.follow(mimex.Window(*window), flags),
        "combine": lambda: made.combine(flat, _array(generator, batch, size), *real),
        "push": lambda: made.push(flat, flags, actions),
        "build": lambda: made.build(features, flags),
        "start": lambda: made.start(flat, flags),
        "step": lambda: made.step(actions, flat, _array(generator, batch), flags),
        "load_state_dict": lambda: made.load_state_dict(_broken(made.state_dict(), generator)),
    }
    name = generator.choice([call for call in calls if callable(getattr(made, call, None))])
    if name == "start" and not isinstance(made, BonusStream):
        return name, None  # of a bonus: no public call
    if name == "step":
        try:
            made.start(np.zeros((2, 6), np.float32))
        except ValueError as error:
            return name, None if "memory" in str(error) else f"refused to start: {error!r}"
    before = copy.deepcopy(made.state_dict())
    what = f"{name} of {batch} x {steps} x {size}, {flags!r}, {actions!r}"
    try:
        calls[name]()
    except (ValueError, TypeError) as error:
        if not str(error):
            return what, f"raised {error!r}"
        if not _same(before, made.state_dict()):
            return what, f"was refused ({error}), but changed the state"
    except Exception as error:
        return what, f"raised {error!r}"
    return what, None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)
