"""Screenshots of the page for the documentation: `python -m tests.page.screenshots [NAME…]`, after `make web`.

They show drawn streets, the same each time.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

import warpdata as wd
from tests.page.conftest import (
    ARGUMENTS,
    CHROMIUM,
    ROOT,
    SCREEN,
    Site,
    publish_drives,
    publish_street,
    publish_trips,
    serving,
)
from tests.page.labels import send_labels, studio
from tests.server.robots import publish_robots

SCREENSHOTS = ROOT / "docs" / "images" / "page"
MOST_BYTES = 150_000
_COLORS = (256, 192, 128, 96)
SCENES = 300
_CORNERS = [(14_000, 12_000), (30_000, 10_000), (33_000, 30_000), (22_000, 36_000), (12_000, 27_000)]
REGION = base64.urlsafe_b64encode(np.array(_CORNERS, "<u2").tobytes()).decode().rstrip("=")
SHOTS = {
    "datasets": ("/", "light"),
    "overview": ("/d/acme/street", "light"),
    "browse": ("/d/acme/street/browse?filter=" + quote("size_bytes BETWEEN 18000 AND 24000"), "light"),
    "sample": ("/d/acme/street/browse?class=bus&sample=4", "dark"),
    "table": ("/d/acme/trips/browse?filter=" + quote("city = 'Oslo'"), "light"),
    "search": ("/d/acme/drives/browse?near=emb:row:8&sample=3&table=main", "light"),
    "statistics": ("/d/acme/street/statistics", "light"),
    "map": ("/d/acme/drives/map?color=light&region=" + REGION, "dark"),
    "episodes": ("/d/acme/robots/episodes?sort=reward&order=desc", "light"),
    "episode": ("/d/acme/robots/episodes?episode=ep_004&frame=30", "dark"),
    "tensors": ("/d/acme/robots/tensors?open=embed,layers,layers.0,layers.0.attn&tensor=embed.weight", "light"),
    "tensors-compared": ("/d/acme/robots/tensors?view=compare&from=step-1&read=1&tensor=head.weight", "light"),
    "versions": ("/d/acme/street/versions", "light"),
    "compare": ("/d/acme/street/compare?from=v1&kind=change-reclassed", "dark"),
    "integrity": ("/d/acme/street/integrity?purge=north/0010.jpg", "light"),
    "runs": ("/d/acme/street/runs?run=41", "light"),
    "sql": (
        "/sql?q="
        + quote('SELECT path, split, size_bytes\nFROM "acme/street/images"\nORDER BY size_bytes DESC\nLIMIT 50'),
        "light",
    ),
    "jobs": ("/jobs", "dark"),
    "admin": ("/admin/audit", "light"),
}
LABEL_SHOTS = {
    "labelling": ("/d/acme/street/labelling?state=conflict", "light"),
    "connections": ("/d/acme/street/labelling?part=connections", "light"),
    "upload": ("/d/acme/street?upload=1", "light"),
    "webhooks": ("/admin/webhooks?workspace=acme", "dark"),
}
"""Taken last, because they change what is shown."""


def main(names: list[str]) -> None:
    """Take screenshots, by default all of them, and refuse those that are too large for the repository."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        store = str(root / "store")
        publish_street(store, "acme/street", SCENES)
        publish_trips(store)
        publish_shapes(store)
        publish_drives(store, 1500)
        publish_robots(store, length=120)
        with serving(root, store, "--allow-network", "127.0.0.1") as site, sync_playwright() as playwright:
            start_jobs(site)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for name, (path, scheme) in SHOTS.items():
                if not names or name in names:
                    take(browser, site, name, path, scheme)
            if not names or LABEL_SHOTS.keys() & set(names):
                take_labelling(browser, site, names)
            browser.close()


def publish_shapes(store: str) -> None:
    """Publish small drawn shapes of three classes, a dataset without annotations."""
    rng = np.random.default_rng(3)
    files, labels = {}, []
    for at in range(120):
        label = ("circle", "square", "star")[at % 3]
        image = Image.new("RGB", (160, 160), tuple(int(part) for part in rng.integers(20, 70, 3)))
        draw, color = ImageDraw.Draw(image), tuple(int(part) for part in rng.integers(120, 255, 3))
        x, y, size = (int(part) for part in (*rng.integers(10, 50, 2), rng.integers(60, 100)))
        if label == "circle":
            draw.ellipse((x, y, x + size, y + size), fill=color)
        elif label == "square":
            draw.rectangle((x, y, x + size, y + size), fill=color)
        else:
            draw.regular_polygon((x + size // 2, y + size // 2, size // 2), 3, fill=color)
        out = io.BytesIO()
        image.save(out, "PNG")
        files[f"{label}/{at:03}.png"] = out.getvalue()
        labels.append(label)
    builder = wd.DatasetBuilder("acme/shapes", store).add_table("main", {"image": list(files), "label": labels})
    builder.add_artifact("images", files, kind="files").bind("main", "image", "images", "image").publish("shapes")


def start_jobs(site: Site) -> None:
    """Run a check and a verification, so that the lists of jobs and of audit entries show some."""
    for body in ({"kind": "integrity"}, {"kind": "verify"}, {"kind": "integrity", "deep": True}):
        site.post("/datasets/acme/street/jobs", body)


def take_labelling(browser: Any, site: Site, names: list[str]) -> None:
    """Fill the inbox, connect a tool, and take the pictures of both."""
    send_labels(site)
    with studio() as tool:
        context = browser.new_context(viewport=SCREEN)
        page = context.new_page()
        page.goto(site.sign_in_url)
        page.wait_for_selector("[data-testid=card]")
        headers = {"X-Warp-Request": "1"}
        base = f"{site.url}/api/v1/datasets/acme/street/connections"
        body = {"name": "Label Studio", "url": tool.url, "token": "t" * 40}
        made = page.request.post(base, data=body, headers=headers).json()
        batch = {"title": "buses, second pass", "class_name": "bus", "ref": "v1"}
        page.request.post(f"{base}/{made['id']}/batches", data=batch, headers=headers)
        hook = {"url": f"{tool.url}/hook", "events": ["head.moved", "job.done"]}
        site.post("/workspaces/acme/webhooks", hook)
        site.post("/datasets/acme/street/jobs", {"kind": "verify"})
        for _ in range(120):
            batch = site.get(f"/datasets/acme/street/connections/{made['id']}/batches")["batches"][0]
            if batch["tasks"] and len(tool.tasks) == batch["tasks"]:
                break
            page.wait_for_timeout(500)
        for task in tool.tasks[: len(tool.tasks) // 3]:
            task["annotations"] = [{"id": 1, "result": [], "unique_id": task["data"]["path"]}]
        page.request.post(f"{base}/{made['id']}/poll", headers=headers)
        context.close()
        for name, (path, scheme) in LABEL_SHOTS.items():
            if not names or name in names:
                take(browser, site, name, path, scheme, PREPARED.get(name))


def check_connection(page: Any) -> None:
    page.get_by_role("button", name="Check").click()
    page.wait_for_function("() => document.querySelectorAll('[data-testid=check]').length === 7")


def drop_files(page: Any) -> None:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), (90, 140, 200)).save(out, "PNG")
    good = [{"name": f"{at:04}.png", "mimeType": "image/png", "buffer": out.getvalue()} for at in range(1200, 1297)]
    script = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (40_000).to_bytes(4, "big") * 2 + b"\x08\2\0\0\0"
    bad = [("overview.svg", script), ("panorama.png", huge)]
    listed = [{"name": name, "mimeType": "image/png", "buffer": data} for name, data in bad]
    page.get_by_test_id("files").set_input_files([*good, *listed])
    page.get_by_role("button", name="Add 97 images to HEAD").wait_for()


PREPARED: dict[str, Callable[[Any], None]] = {"connections": check_connection, "upload": drop_files}


def take(
    browser: Any, site: Site, name: str, path: str, scheme: str, prepare: Callable[[Any], None] | None = None
) -> None:
    context = browser.new_context(viewport=SCREEN, color_scheme=scheme)
    context.set_extra_http_headers({"Authorization": f"Bearer {site.tokens['admin']}"})
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto(site.url + path)
    page.wait_for_selector("h1, [data-testid]")
    page.wait_for_function("() => !document.querySelector('[aria-busy=\"true\"]')")
    page.wait_for_function(
        """() => {
            const near = [...document.images].filter(one => one.getBoundingClientRect().top < innerHeight)
            return !document.querySelector('.wait') && near.every(one => one.complete)
        }"""
    )
    if prepare is not None:
        prepare(page)
    page.wait_for_timeout(700)  # canvases are drawn after their images
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    context.close()
    print(f"{name}: {save(image, SCREENSHOTS / f'{name}.png') / 1000:.0f} kB")


def save(image: Image.Image, target: Path) -> int:
    """Store an image with as many colours as fit, and return its size."""
    image.save(target, optimize=True)
    for colors in _COLORS:
        if target.stat().st_size > MOST_BYTES:
            method = Image.Quantize.FASTOCTREE
            image.quantize(colors, method, dither=Image.Dither.NONE).save(target, optimize=True)
    size = target.stat().st_size
    assert size <= MOST_BYTES, f"{target} has {size} bytes"
    return size


if __name__ == "__main__":
    main(sys.argv[1:])
