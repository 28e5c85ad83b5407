"""Video files (mp4)."""

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
"""Constant rate factor of x264: 0 is lossless, 51 is worst; 18 is visually lossless."""


def write_video(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float) -> None:
    """Writes an mp4 (H.264) atomically.

    Args:
        path: The file; its folder is created if missing.
        frames: uint8 ``(H, W, 3)`` each; may be a generator.
        fps: Frames per second.
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
    # Players expect 4:2:0 chroma subsampling, which needs even sizes.
    encoded = ["-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    encoded += ["-c:v", "libx264", "-crf", str(_QUALITY), "-movflags", "+faststart"]
    command = [ffmpeg(), "-y", "-v", "error", *raw, "-r", str(fps), "-i", "-", *encoded, str(path)]
    with TemporaryFile() as errors:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as encoder:
            assert encoder.stdin is not None
            try:
                for frame in frames:
                    encoder.stdin.write(np.ascontiguousarray(frame).data)
                encoder.stdin.close()
            except BrokenPipeError:
                pass  # the encoder has failed, reported below
        if encoder.returncode:
            errors.seek(0)
            reason = errors.read().decode(errors="replace").strip()
            raise OSError(f"ffmpeg could not write the video ({encoder.returncode}): {reason}")


def ffmpeg() -> str:
    """Path of the ffmpeg executable."""
    with optional_import("writing videos"):
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())


def _checked(frame: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3 or frame.shape != shape:
        raise ValueError(
            f"a frame is {frame.dtype} of shape {frame.shape}; expected uint8 of shape "
            f"(H, W, 3), the same for all frames (the first is {shape})."
        )
    return frame
