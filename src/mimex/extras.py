"""Optional packages: which extra of mimex installs them, and the error if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "gymnasium": "train",
    "jinja2": "train",
    "matplotlib": "train",
    "rich": "train",
    "safetensors": "train",
    "scipy": "train",
    "tyro": "train",
    "mujoco": "envs",
    "mujoco_warp": "warp",
    "warp": "warp",
    "dm_control": "dmc",
    "ray": "ray",
    "imageio_ffmpeg": "video",
    "viser": "view",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "stable_baselines3": "sb3",
    "rsl_rl": "rsl",
    "h5py": "demos",
    "minari": "demos",
    "onnx": "onnx",
}
"""The extra that installs a package, by the name that is imported."""


class MissingPackageError(ModuleNotFoundError):
    """An optional package is not installed. The message has the command that installs it."""


def pip_install(extra: str) -> str:
    """Returns the command that installs an extra, for an installed mimex and for a checkout."""
    return f"pip install 'mimex[{extra}]' (in a checkout: pip install -e '.[{extra}]')"


@contextmanager
def optional_import(user: str, extra: str | None = None) -> Iterator[None]:
    """Adds the install command to the error if an optional package is missing in the block.

    Args:
        user: What needs the package, for the message: "the viewer".
        extra: The extra to install; by default that of the missing package.
    """
    try:
        yield
    except MissingPackageError:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingPackageError(
            f"{user} needs {package}, which is not installed: "
            f"{pip_install(extra or EXTRAS[package])}",
            name=error.name,
        ) from error
