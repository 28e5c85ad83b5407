"""Draws docs/images/gallery.png: the eight tasks, each with its expert at work.

Run from the project's root: MUJOCO_GL=egl python scripts/gallery.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from PIL import Image

from mimex.envs.experts import demonstrate

# Task, seed, and the control step at which to look.
MOMENTS = (
    ("FrankaReach", 8, 40),
    ("FrankaCabinet", 3, 195),
    ("FrankaPick", 5, 185),
    ("FrankaMove", 2, 165),
    ("KukaReach", 4, 60),
    ("KukaCabinet", 3, 195),
    ("KukaPick", 5, 185),
    ("KukaMove", 2, 178),
)
COLUMNS = 4
INSET = 168  # pixels
GAP = 8  # pixels of white between the pictures
WIDTH = 1800  # pixels, of the whole gallery
TARGET = Path("docs/images/gallery.png")


def moment(task: str, seed: int, step: int) -> np.ndarray:
    """Return the picture of one step, the wrist's view framed in white."""
    pictures = demonstrate(task, seed, inset=INSET, every=step)
    picture = next(itertools.islice(pictures, 1, None))
    picture[INSET : INSET + GAP, : INSET + GAP] = 255
    picture[:INSET, INSET : INSET + GAP] = 255
    return np.pad(picture, ((0, GAP), (0, GAP), (0, 0)), constant_values=255)


def main() -> None:
    """Draw and save the gallery."""
    pictures = [moment(*choice) for choice in MOMENTS]
    rows = [np.hstack(pictures[i : i + COLUMNS]) for i in range(0, len(pictures), COLUMNS)]
    whole = Image.fromarray(np.vstack(rows)[:-GAP, :-GAP])
    height = round(whole.height * WIDTH / whole.width)
    small = whole.resize((WIDTH, height), Image.Resampling.LANCZOS)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    small.save(TARGET, optimize=True)
    print(f"{TARGET}: {small.width} x {small.height}, {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
