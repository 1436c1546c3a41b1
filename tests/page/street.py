"""Drawn street scenes with exact annotations: boxes, polygons, masks and keypoints, the same for each seed.

No photo could be stored here, and of a drawing every annotation is known.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw

import warpdata as wd
from warpdata.collections import Annotation

__all__ = ["Scene", "draw_scene", "draw_tile"]

WIDTH, HEIGHT = 480, 320
_ROAD = 225
_SKIES = {
    "day": ((126, 190, 236), (226, 240, 248)),
    "dusk": ((70, 64, 120), (250, 170, 120)),
    "night": ((10, 14, 32), (44, 52, 84)),
}
_PAINTS = ((208, 64, 52), (46, 110, 190), (236, 196, 70), (235, 235, 232), (60, 66, 74), (76, 150, 110))
_WALLS = ((176, 120, 96), (150, 148, 140), (196, 176, 140), (112, 120, 134), (140, 96, 88))
_COATS = ((190, 60, 80), (60, 90, 160), (230, 150, 60), (90, 140, 90), (120, 80, 150))


@dataclass
class Scene:
    """A picture with its annotations."""

    data: bytes
    light: str
    annotations: list[Annotation] = field(default_factory=list)


def draw_scene(seed: int) -> Scene:
    """Draw a street: houses behind a road, cars and buses on it, people beside it."""
    rng = np.random.default_rng(seed)
    light = ("day", "day", "dusk", "night")[rng.integers(4)]
    shade = {"day": 1.0, "dusk": 0.8, "night": 0.45}[light]
    image = _sky(light)
    draw = ImageDraw.Draw(image)
    found: list[Annotation] = []
    at = int(rng.integers(-40, 10))
    while at < WIDTH:
        width, height = int(rng.integers(50, 110)), int(rng.integers(70, 170))
        found.append(_house(draw, rng, (at, _ROAD - height, at + width, _ROAD), shade))
        at += width + int(rng.integers(0, 14))
    draw.rectangle((0, _ROAD, WIDTH, _ROAD + 14), fill=_dim((170, 168, 160), shade))
    draw.rectangle((0, _ROAD + 14, WIDTH, HEIGHT), fill=_dim((82, 84, 90), shade))
    for x in range(int(rng.integers(0, 40)), WIDTH, 60):
        draw.rectangle((x, 278, x + 30, 281), fill=_dim((230, 230, 210), shade))
    for _ in range(int(rng.integers(1, 4))):
        found.append(_person(draw, rng, int(rng.integers(20, WIDTH - 20)), shade))
    lanes = [(int(rng.integers(10, 130)), 270), (int(rng.integers(190, 300)), 270), (int(rng.integers(30, 260)), 312)]
    for x, y in lanes[: int(rng.integers(1, 4))]:
        found.append(_vehicle(draw, rng, x, y, shade))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return Scene(out.getvalue(), light, [*found, wd.Label(light)])


def _sky(light: str) -> Image.Image:
    top, low = (np.array(color, float) for color in _SKIES[light])
    share = np.clip(np.arange(HEIGHT) / _ROAD, 0, 1)[:, None]
    rows = (top * (1 - share) + low * share).astype(np.uint8)
    return Image.fromarray(np.repeat(rows[:, None, :], WIDTH, axis=1))


def _dim(color: tuple[int, ...], shade: float) -> tuple[int, ...]:
    return tuple(int(part * shade) for part in color)


def _house(
    draw: ImageDraw.ImageDraw, rng: np.random.Generator, box: tuple[int, int, int, int], shade: float
) -> Annotation:
    left, top, right, low = box
    wall = _WALLS[rng.integers(len(_WALLS))]
    draw.rectangle(box, fill=_dim(wall, shade))
    points = [(left, low), (left, top), (right, top), (right, low)]
    if rng.random() < 0.6:
        roof = ((left + right) // 2, top - int(rng.integers(12, 34)))
        draw.polygon([(left, top), roof, (right, top)], fill=_dim((120, 60, 54), shade))
        points.insert(2, roof)
    lit = (250, 220, 130)
    for x in range(left + 8, right - 14, 20):
        for y in range(top + 10, low - 20, 26):
            glows = shade < 0.9 and rng.random() < 0.5
            draw.rectangle((x, y, x + 10, y + 14), fill=lit if glows else _dim((150, 180, 200), shade))
    return wd.Polygon("building", [_clipped(points)])


def _clipped(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(min(max(x, 0), WIDTH), min(max(y, 0), HEIGHT)) for x, y in points]


def _person(draw: ImageDraw.ImageDraw, rng: np.random.Generator, x: int, shade: float) -> Annotation:
    low, size = int(rng.integers(_ROAD + 8, _ROAD + 18)), int(rng.integers(44, 62))
    swing = size * 0.12 * (1 if rng.random() < 0.5 else -1)
    head, neck, hip = (x, low - size), (x, low - size * 0.78), (x, low - size * 0.42)
    hands = [(x - swing * 1.6, low - size * 0.48), (x + swing * 1.6, low - size * 0.5)]
    feet = [(x - swing, low), (x + swing, low)]
    coat, skin = _dim(_COATS[rng.integers(len(_COATS))], shade), _dim((222, 180, 150), shade)
    for foot in feet:
        draw.line([hip, foot], fill=_dim((40, 44, 60), shade), width=5)
    draw.line([neck, hip], fill=coat, width=11)
    for hand in hands:
        draw.line([neck, hand], fill=coat, width=4)
    radius = size * 0.1
    draw.ellipse((head[0] - radius, head[1] - radius, head[0] + radius, head[1] + radius), fill=skin)
    joints = [head, neck, *hands, hip, *feet]
    return wd.Keypoints("person", [(round(a, 1), round(b, 1), 2 if 0 <= a <= WIDTH else 0) for a, b in joints])


def _vehicle(draw: ImageDraw.ImageDraw, rng: np.random.Generator, x: int, low: int, shade: float) -> Annotation:
    is_bus = rng.random() < 0.25
    scale = 1.0 if low < 300 else 1.25
    width, height = (int((150 if is_bus else 100) * scale), int((62 if is_bus else 40) * scale))
    paint = _dim(_PAINTS[rng.integers(len(_PAINTS))], max(shade, 0.6))
    top, right = low - height, x + width
    outline: list[tuple[float, float]] = [(x, low - 6), (x, top), (right, top), (right, low - 6)]
    if not is_bus:
        middle = top + height * 0.42
        outline = [(x, low - 6), (x, middle + 4), (x + width * 0.16, middle), (x + width * 0.3, top)]
        outline += [(x + width * 0.68, top), (x + width * 0.84, middle), (right, middle + 6), (right, low - 6)]
    draw.polygon(outline, fill=paint)
    glass = (255, 236, 170) if shade < 0.9 else (170, 200, 216)
    if is_bus:
        for left in range(x + 8, right - 16, int(22 * scale)):
            draw.rectangle((left, top + 10, left + 15 * scale, top + 28 * scale), fill=glass)
    else:
        draw.rectangle((x + width * 0.33, top + 5, x + width * 0.65, top + height * 0.4), fill=glass)
    radius = 9 * scale
    wheels = [x + width * 0.22, x + width * 0.78]
    for wheel in wheels:
        draw.ellipse((wheel - radius, low - 2 * radius, wheel + radius, low), fill=(24, 24, 28))
    name = "bus" if is_bus else "car"
    if rng.random() < 0.4:
        mask = Image.new("L", (WIDTH, HEIGHT))
        pen = ImageDraw.Draw(mask)
        pen.polygon(outline, fill=1)
        for wheel in wheels:
            pen.ellipse((wheel - radius, low - 2 * radius, wheel + radius, low), fill=1)
        return wd.Mask(name, np.asarray(mask).astype(bool))
    right = min(right, WIDTH)
    return wd.Box(name, x, top, right - x, low - top, attributes={"occluded": bool(math.fmod(x, 2))})


def draw_tile(number: int) -> bytes:
    """Draw a small image that no other number has."""
    image = Image.new("RGB", (64, 48), ((number * 37) % 200 + 30, (number * 91) % 200 + 30, (number * 53) % 200 + 30))
    ImageDraw.Draw(image).text((6, 16), str(number), fill="white")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
