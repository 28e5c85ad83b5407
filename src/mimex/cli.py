"""The command line of mimex: runs a command and reports errors in one line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from mimex.extras import optional_import
from mimex.files import printable

COMMANDS = {
    "train": "train an agent on a task with an exploration bonus, or resume a run",
    "pretrain": "pretrain the image encoder on unlabeled images of the wrist camera",
    "eval": "evaluate a policy: return, success rate with its interval, video",
    "play": "run episodes of a policy, print their outcome, and record a video if asked",
    "export": "write a policy to an ONNX or safetensors file that needs no PyTorch",
    "demos": "record demonstrations of an expert or a policy as a Minari dataset",
    "view": "show a policy or a task in the browser, with live plots",
    "study": "run a set of experiments, then draw figures and write a report",
    "report": "write an HTML page about some runs: curves, settings, maps, videos",
    "envs": "list the tasks",
    "demo": "compare plain PPO with PPO and MIMEx on two tasks with sparse reward",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: mimex COMMAND ... (see mimex COMMAND --help)\n")
        print("\n".join(f"  {name:9}{what}" for name, what in COMMANDS.items()))
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from mimex import __version__

        print(f"mimex {__version__}")
        return 0
    try:
        with optional_import(f"mimex {arguments[0]}"):
            from mimex.envs.nearest import choose  # loads NumPy, which takes a moment

            name = choose("the command", arguments[0], tuple(COMMANDS))
            _require_values(arguments)
            code: int = import_module(f"mimex.commands.{name}").run(arguments[1:])
    except (ValueError, OSError, ImportError, RuntimeError, MemoryError, OverflowError) as error:
        print(f"mimex: {printable(_words(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mimex: interrupted; what was saved is intact", file=sys.stderr)
        return 128 + signal.SIGINT
    return code


def _require_values(arguments: Sequence[str]) -> None:
    """Raises an error for words without letters, such as a shell makes of an unset variable."""
    flag = "an argument"  # or the last flag, whose value it is
    for word in arguments[1:]:
        name, equals, value = word.partition("=")
        flag = name if name.startswith("--") else flag
        if not word or (equals and not value and name.startswith("--")):
            raise ValueError(f"{flag} is empty: give it a value, or leave it out")


def _words(error: Exception) -> str:
    """The error's own words, without the number that the system's errors begin with."""
    if isinstance(error, OSError) and error.strerror:
        named = error.filename2 or error.filename
        return f"{named}: {error.strerror}" if named else error.strerror
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
