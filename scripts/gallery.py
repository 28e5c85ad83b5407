"""Draws the moving images of the README from trained policies.

Run from the project's root:

    python scripts/gallery.py tasks                  docs/images/gallery.webp: the eight tasks
    python scripts/gallery.py beside RUN             docs/images/beside.webp: a task without and with MIMEx
    python scripts/gallery.py experts                docs/images/gallery.png: stills of the experts

`tasks` plays the shipped policy of each task, of dense reward if there is one. RUN is a run folder
without a bonus; the shipped policy of its task and reward plays beside it. Every clip is the first
episode from seed 0 on that succeeds (without a bonus: that of the same seed), a third slower than it
is long: 15 images for 20.
"""  # noqa: E501 (the commands)

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from mimex.commands.build import load_agent, make_env
from mimex.commands.play import make_rendered_env
from mimex.commands.pretrained import load_pretrained
from mimex.config import TrainConfig
from mimex.contracts import Policy
from mimex.envs.experts import demonstrate
from mimex.policies import names

Frame = NDArray[np.uint8]

IMAGES = Path("docs/images")
TASKS = tuple(f"{robot}{kind}" for robot in ("Franka", "Kuka") for kind in ("Reach", "Cabinet", "Pick", "Move"))  # fmt: skip  # noqa: E501
MOMENTS = dict(zip(TASKS, ((8, 40), (3, 195), (5, 185), (2, 165), (4, 60), (3, 195), (5, 185), (2, 178)), strict=True))  # fmt: skip  # noqa: E501
"""Seed of the expert's still, and the control step at which to look."""
COLUMNS = 4
INSET = 168  # pixels
GAP = 8  # pixels of white between the stills
WIDTH = 1800  # pixels, of all stills
EVERY, FPS = 3, 15  # control steps per image, and images per second
LINGER = 10  # images after success
TILE = (240, 180)  # pixels
BESIDE_TILE = (400, 300)  # pixels
QUALITY = 60
SEEDS = 100


def succeeds(config: TrainConfig, policy: Policy, seed: int) -> bool:
    """Return whether the episode of a seed succeeds."""
    env = make_env(config, 1)
    try:
        return any(success for _, success in steps(env, policy, seed))
    finally:
        env.close()


def steps(env: Any, policy: Policy, seed: int) -> Any:
    """Yield the number of each step of an episode and whether it has succeeded by then."""
    observation, _ = env.reset(seed=[seed])
    for step in itertools.count():
        observation, _, terminated, truncated, info = env.step(policy.policy(observation))
        ended = bool(terminated[0] | truncated[0])
        final = info["final_info"] if ended and "final_info" in info else info
        yield step, bool(final["success"][0])
        if ended:
            return


def clip(
    config: TrainConfig, policy: Policy, seed: int, size: tuple[int, int], most: int | None = None
) -> list[Image.Image]:
    """Return images of an episode until shortly after its success, at most so many."""
    env = make_rendered_env(config)
    images: list[Image.Image] = []
    after = 0
    try:
        for step, success in steps(env, policy, seed):
            if step % EVERY == 0:
                rendered: Any = env.render()
                images.append(Image.fromarray(rendered[0]).resize(size, Image.Resampling.LANCZOS))
                after += success
            if after > LINGER or len(images) == most:
                break
    finally:
        env.close()
    return images


def first_success(config: TrainConfig, policy: Policy) -> int:
    """Return the first seed whose episode succeeds."""
    return next(seed for seed in range(SEEDS) if succeeds(config, policy, seed))


def held(images: list[Image.Image], length: int) -> list[Image.Image]:
    """Repeat the last image."""
    return images + [images[-1]] * (length - len(images))


def labeled(image: Image.Image, text: str) -> Image.Image:
    """Return the image with a caption below."""
    font = ImageFont.load_default(image.width // 22)
    height = image.width // 14
    made = Image.new("RGB", (image.width, image.height + height), "white")
    made.paste(image, (0, 0))
    at = (image.width / 2, image.height + height / 2)
    ImageDraw.Draw(made).text(at, text, fill="black", font=font, anchor="mm")
    return made


def write(path: Path, columns: int, clips: dict[str, list[Image.Image]]) -> None:
    """Write clips beside one another, by caption, as a WebP that repeats."""
    length = max(map(len, clips.values()))
    tiles = [[labeled(image, text) for image in held(made, length)] for text, made in clips.items()]
    width, height = tiles[0][0].size
    frames = []
    for moment in zip(*tiles, strict=True):
        frame = Image.new("RGB", (columns * width, -(-len(moment) // columns) * height), "white")
        for place, tile in enumerate(moment):
            frame.paste(tile, (place % columns * width, place // columns * height))
        frames.append(frame)
    durations = [1000 // FPS] * (length - 1) + [1500]
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=QUALITY,
        method=6,
    )  # fmt: skip
    print(f"{path}: {frame.width} x {frame.height}, {path.stat().st_size / 1e6:.2f} MB")


def tasks() -> None:
    """Draw the eight tasks, played by shipped policies."""
    chosen = {task: [n for n in (task, f"{task}-sparse", f"{task}-sparser") if n in names()] for task in TASKS}  # fmt: skip  # noqa: E501
    if missing := [task for task, found in chosen.items() if not found]:
        raise SystemExit(f"no shipped policy of {', '.join(missing)}: see scripts/ship.py")
    clips = {}
    for task, (name, *_) in chosen.items():
        config, policy, _ = load_pretrained(name)
        seed = first_success(config, policy)
        clips[task] = clip(config, policy, seed, TILE)
        print(f"{name}, seed {seed}: {len(clips[task])} images", flush=True)
    write(IMAGES / "gallery.webp", COLUMNS, clips)


def beside(run: Path) -> None:
    """Draw a run without a bonus and the shipped policy of its task and reward."""
    without, plain, _ = load_agent(run, "latest")
    config, policy, _ = load_pretrained(f"{without.task}-{without.reward}")
    if without.bonus != "none" or config.bonus != "mimex" or without.world != config.world:
        raise SystemExit(f"{run} is not the run without a bonus to the shipped policy's with MIMEx")
    seed = first_success(config, policy)
    best = clip(config, policy, seed, BESIDE_TILE)
    other = clip(without, plain, seed, BESIDE_TILE, most=len(best))
    write(IMAGES / "beside.webp", 2, {"PPO": other, "PPO with MIMEx": best})


def experts() -> None:
    """Draw stills of the experts, with the wrist's view framed in white."""
    stills = []
    for task, (seed, step) in MOMENTS.items():
        still = next(itertools.islice(demonstrate(task, seed, inset=INSET, every=step), 1, None))
        still[INSET : INSET + GAP, : INSET + GAP] = 255
        still[:INSET, INSET : INSET + GAP] = 255
        stills.append(np.pad(still, ((0, GAP), (0, GAP), (0, 0)), constant_values=255))
    rows = [np.hstack(stills[i : i + COLUMNS]) for i in range(0, len(stills), COLUMNS)]
    whole = Image.fromarray(np.vstack(rows)[:-GAP, :-GAP])
    height = round(whole.height * WIDTH / whole.width)
    path = IMAGES / "gallery.png"
    whole.resize((WIDTH, height), Image.Resampling.LANCZOS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("tasks")
    commands.add_parser("experts")
    commands.add_parser("beside").add_argument("run", type=Path)
    options = parser.parse_args()
    if options.what == "beside":
        beside(options.run)
    else:
        {"tasks": tasks, "experts": experts}[options.what]()


if __name__ == "__main__":
    main()
