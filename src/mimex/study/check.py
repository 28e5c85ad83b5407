"""Do a run's settings mean anything to `mimex train`? Asked before the first run starts."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from mimex.config import TrainConfig, of_suite, parse
from mimex.study.plan import PlannedRun


def config_of(run: PlannedRun) -> TrainConfig:
    """The settings that a run will have, all of them.

    Raises:
        ValueError: With the error that would end the run at once, and the run's name.
    """
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            return parse(run.arguments).checked()
    except ValueError as error:
        raise ValueError(f"the run {run.name} cannot be made: {error}") from error
    except SystemExit as error:  # how tyro refuses, having printed a box of words
        lines = [line.strip() for line in said.getvalue().splitlines()]
        words = [line for line in lines if line.strip("- ")]
        raise ValueError(f"the run {run.name} cannot be made: {'; '.join(words[1:4])}") from error


def require_files(config: TrainConfig) -> None:
    """Raises an error if the run would not find the weights that it starts from."""
    vision = config.vision
    if of_suite(config.task) or config.observation != "pixels" or vision.encoder != "vit":
        return
    if vision.checkpoint is None or not vision.checkpoint.exists():
        raise ValueError(
            f"vision.checkpoint is {vision.checkpoint}, but must be a file with the weights of the "
            "ViT: add --set vision.checkpoint=FILE, an absolute path if other machines read it"
        )
