"""A small dataset with episodes and tensors, for the routes and for the page."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import warpdata as wd
from warpdata.wshard import Channel, Episode, Timebase, frames_block, index_images

__all__ = ["EPISODES", "checkpoint", "make_episode", "publish_robots"]

EPISODES = 12
WEIGHTS = 1_100_000
"""Elements of a tensor with a stored file of its own."""


def make_episode(at: int, length: int) -> Episode:
    """Return an episode with a camera, an array of images, joints, actions, and predictions of them."""
    rng = np.random.default_rng(at)
    step = np.arange(length)
    ctrl = np.stack([np.sin(step / 9 + joint) for joint in range(3)], 1).astype(np.float32)
    camera, index = index_images([_frame(at, number) for number in range(length)], _times(length), "wrist")
    error = (0.05 + 0.1 * np.abs(np.cos(step / 20)))[:, None].repeat(3, 1).astype(np.float32)
    metadata: dict[str, Any] = {"success": at % 3 != 0, "operator": "ab"[at % 2], "tags": [f"tag{at % 4}", "demo"]}
    return Episode(
        f"ep_{at:03}",
        length,
        "Lift-v1" if at % 2 else "Stack-v1",
        Timebase("ticks", 30.0),
        observations={
            "wrist": camera,
            "depth": Channel("depth", _depth(at, length)),
            "joint": Channel("joint", np.cumsum(rng.normal(0, 0.05, (length, 7)), 0).astype(np.float32)),
        },
        actions={"ctrl": Channel("ctrl", ctrl)},
        rewards=(step % 10 == 9).astype(np.float32) * (at + 1) / 8,
        omens={"ctrl/policy": Channel("ctrl", ctrl + rng.normal(0, 0.08, ctrl.shape).astype(np.float32))},
        uncertainties={"ctrl/policy/std": Channel("ctrl", error)},
        metadata=metadata,
        extra={frames_block("signal/wrist"): index},
    )


def _times(length: int) -> list[int]:
    return [number * 33_333_333 for number in range(length)]


def _frame(at: int, number: int) -> bytes:
    """Return an image of a gripper above a table. The stripe at the top says which frame it is."""
    image = Image.new("RGB", (160, 120), (52 + at, 60, 74))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 78, 160, 120), fill=(146, 112, 82))
    draw.rectangle((0, 0, number, 3), fill=(90, 210, 160))
    x, y = 70 + 42 * np.sin(number / 17 + at), 44 + 18 * np.sin(number / 11)
    draw.rectangle((98, 74, 118, 94), fill=(214, 92, 66))
    draw.rectangle((x - 3, 0, x + 3, y), fill=(188, 194, 204))
    draw.rectangle((x - 13, y, x + 13, y + 6), fill=(222, 226, 232))
    draw.rectangle((x - 13, y + 6, x - 9, y + 20), fill=(222, 226, 232))
    draw.rectangle((x + 9, y + 6, x + 13, y + 20), fill=(222, 226, 232))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _depth(at: int, length: int) -> NDArray[np.uint8]:
    """Return small arrays of pixels: a hill that moves."""
    rows, columns = np.mgrid[0:24, 0:32]
    step = np.arange(length)[:, None, None]
    far = (columns - 16 - 9 * np.sin(step / 17 + at)) ** 2 + (rows - 10 - 4 * np.sin(step / 11)) ** 2
    near = np.clip(250 * np.exp(-far / 60) + rows * 2, 0, 255).astype(np.uint8)
    return np.stack([near, near // 2 + 30, 120 - near // 3], -1).astype(np.uint8)


def checkpoint(seed: int = 0) -> dict[str, Any]:
    """Return tensors with dotted names: two large ones, and small ones."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {
        f"layers.{at}.{part}.weight": rng.normal(0, 0.02, (16, 24)).astype(np.float32)
        for at in range(12)
        for part in ("attn", "mlp")
    }
    found |= {f"layers.{at}.norm": np.ones(24, np.float16) for at in range(12)}
    found["embed.weight"] = rng.normal(0, 0.5, (WEIGHTS // 100, 100)).astype(np.float32)
    found["head.weight"] = rng.normal(0, 0.1, (100, WEIGHTS // 100)).astype(np.float32)
    found["steps"] = np.int64(1000)
    return found


def publish_robots(store: str, dataset_id: str = "acme/robots", length: int = 40) -> None:
    """Publish the versions `step-1` and `step-2`, which has an episode more, and other tensors."""
    episodes = [make_episode(at, length + 5 * at) for at in range(EPISODES)]
    first = checkpoint()
    builder = wd.DatasetBuilder(dataset_id, store).add_episodes("demos", episodes[:-1])
    builder.add_tensors("weights", first).publish("first demos", label="step-1", author="ana")
    second = {name: array.copy() for name, array in first.items() if name != "layers.11.norm"}
    second["head.weight"] = first["head.weight"] + np.float32(0.25)
    second["embed.weight"][3, 4] = np.nan
    second["layers.0.attn.weight"] = np.zeros((8, 24), np.float32)
    second["head.scale"] = np.ones(3, np.float32)
    builder = wd.DatasetBuilder(dataset_id, store).add_episodes("demos", episodes)
    builder.add_tensors("weights", second).publish("one more demo", label="step-2", author="ben", replace=True)
