"""Videos of frames, as mp4."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from importlib import import_module
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from mimex.extras import optional_import
from mimex.files import replacing

_QUALITY = 18
"""x264's constant rate factor: 0 is lossless, 51 the worst; 18 looks like the original."""


def write_video(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float) -> None:
    """Writes frames as an mp4 (H.264), which appears under its name only when it is complete.

    Args:
        path: The file; its folder is made when missing.
        frames: ``(H, W, 3)`` each; taken one by one, so that a generator needs no memory.
        fps: Frames per second.

    Raises:
        ImportError: If the encoder is not installed.
        ValueError: If there are no frames, or one is no such image or of another size.
        OSError: If the encoder fails, for instance on a full disk.
    """
    if path.suffix != ".mp4":
        raise ValueError(f"path={path} ends in {path.suffix!r}; expected '.mp4'.")
    if not fps > 0:
        raise ValueError(f"fps={fps}; expected a positive number of frames per second.")
    remaining = iter(frames)
    first = next(remaining, None)
    if first is None:
        raise ValueError(f"frames is empty: there is nothing to write to {path}.")
    shape = np.shape(first)
    frames = (_checked(frame, shape) for frame in chain([first], remaining))
    with replacing(path) as aside:
        _encode(aside, frames, shape, fps)


def _encode(
    path: Path, frames: Iterable[NDArray[np.uint8]], shape: tuple[int, ...], fps: float
) -> None:
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape[1]}x{shape[0]}"]
    # Players want 4:2:0 colours, which need even sizes.
    encoded = ["-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    encoded += ["-c:v", "libx264", "-crf", str(_QUALITY), "-movflags", "+faststart"]
    command = [ffmpeg(), "-y", "-v", "error", *raw, "-r", str(fps), "-i", "-", *encoded, str(path)]
    with TemporaryFile() as complaints:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=complaints) as encoder:
            assert encoder.stdin is not None
            try:
                for frame in frames:
                    encoder.stdin.write(np.ascontiguousarray(frame).data)
                encoder.stdin.close()
            except BrokenPipeError:
                pass  # it has ended before us, and says why below
        if encoder.returncode:
            complaints.seek(0)
            words = complaints.read().decode(errors="replace").strip()
            raise OSError(f"ffmpeg could not write the video ({encoder.returncode}): {words}")


def ffmpeg() -> str:
    """The encoder's path; an error that names what to install if there is none."""
    with optional_import("writing videos"):
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())


def _checked(frame: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3 or frame.shape != shape:
        raise ValueError(
            f"a frame is {frame.dtype} of shape {frame.shape}; expected uint8 of shape "
            f"(H, W, 3), all of one size (the first is {shape})."
        )
    return frame
