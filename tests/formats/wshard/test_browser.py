"""If this fails, the TypeScript library behaves differently in a real browser than in Node.

A page imports the built library without a bundler, from a local server. Skipped without Chromium or playwright (the
extra `browser`).
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.drivers import GOLDEN, described, sha256
from tests.formats.wshard.scenes import VECTORS, full_episode, same_episode
from tests.formats.wshard.test_frames import SCENES, with_video
from tests.formats.wshard.typescript import PACKAGE
from tests.kinds.artifacts.media import Scene, encode_test_image
from tests.reference import wshard_reader as reference
from tests.web_server import WebServer, serving
from warpdata.wshard import (
    Channel,
    Episode,
    FrameReader,
    frames_block,
    identity,
    index_images,
    load_wshard,
    open_wshard,
    save_wshard,
)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd"},
    {"compression": "lz4", "alignment": 0, "seal": True},
    {"compression": "zstd", "time_chunk_steps": 7},
]
ENCODER = "/lake/library/node_modules/@bokuweb/zstd-wasm/dist/web/"
IMPORTS = {
    "@warpdata/wshard": "/lake/library/dist/src/index.js",
    "#platform": "/lake/library/dist/src/platform-web.js",
    "hash-wasm": "/lake/library/node_modules/hash-wasm/dist/index.esm.js",
    "zstddec": "/lake/library/node_modules/zstddec/dist/zstddec.mjs",
    "@bokuweb/zstd-wasm": f"{ENCODER}index.web.js",
    # This package omits the suffixes of its modules, for bundlers.
    **{
        ENCODER + name: f"{ENCODER}{name}.js"
        for name in (
            "module",
            "zstd",
            "simple/compress",
            "simple/compress_using_dict",
            "simple/decompress",
            "simple/decompress_using_dict",
        )
    },
    f"{ENCODER}errors": f"{ENCODER}errors/index.js",
}
PAGE = f"""<!doctype html><meta charset="utf-8"><title>episodes</title>
<script type="importmap">{json.dumps({"imports": IMPORTS})}</script>"""


class Browser:
    """A page with the library, and the directory of its server."""

    def __init__(self, page: Any, server: WebServer, directory: Path) -> None:
        self._page, self.server, self.directory = page, server, directory

    def run(self, script: str, argument: Any = None) -> Any:
        """Run an async function body in the page, where `wshard` is the library and `tell` describes episodes."""
        prelude = """const wshard = await import("@warpdata/wshard");
            const tell = await import("/lake/library/dist/test/describe.js");"""
        return self._page.evaluate(f"async (given) => {{ {prelude} {script} }}", argument)

    def title(self, url: str) -> str:
        """Return the title of another page after its scripts have run."""
        page = self._page.context.new_page()
        try:
            page.goto(self.server.url.removesuffix("/lake") + url)
            page.wait_for_function("document.title !== ''", timeout=20_000)
            return str(page.title())
        finally:
            page.close()

    def show(self, name: str, data: bytes) -> str:
        """Put a file on the server, and return its relative address."""
        (self.directory / name).write_bytes(data)
        return f"/lake/{name}"


@pytest.fixture(scope="module")
def browser(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    directory = tmp_path_factory.mktemp("site")
    (directory / "library").symlink_to(library)
    (directory / "index.html").write_text(PAGE, encoding="utf-8")
    with (
        serving(directory) as server,
        playwright.sync_playwright() as started,
        # Not every test environment supports sandboxes, and only our own page is shown.
        started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as chromium,
    ):
        page = chromium.new_context().new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{server.url}/index.html")
        yield Browser(page, server, directory)
        assert not problems


def test_page_runs_in_a_browser(browser: Browser) -> None:
    """Check the premise of these tests."""
    found = browser.run("return [typeof process, typeof document, navigator.userAgent]")
    assert found[:2] == ["undefined", "object"]
    assert "Chrome/" in found[2]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_page_reads_files_of_python(browser: Browser, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path, **options)
    url = browser.show("a.wshard", path.read_bytes())
    found = browser.run(
        """const answer = await fetch(given);
        const bytes = await answer.arrayBuffer();
        const from = [bytes, new Uint8Array(bytes), new Blob([bytes]), given];
        return Promise.all(from.map(async (one) => [
            await tell.describe(await wshard.loadWShard(one)), await wshard.identity(one)]));""",
        url,
    )
    expected = [described(load_wshard(path)), identity(path)]
    assert found == [expected] * 4


def test_page_reads_all_reference_files(browser: Browser) -> None:
    for path in [*sorted(VECTORS.glob("*.wshard")), *sorted(GOLDEN.glob("*.wshard"))]:
        if path.name == "manifest.wshard":
            continue
        url = browser.show(path.name, path.read_bytes())
        assert browser.run("return tell.describe(await wshard.loadWShard(given))", url) == described(load_wshard(path))


@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "time_chunk_steps": 50}], ids=str)
def test_window_reads_only_its_range(browser: Browser, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    noise = np.random.default_rng(1).integers(0, 255, (1000, 2000), dtype=np.uint8)
    save_wshard(Episode("long", 1000, observations={"cam": Channel("cam", noise)}), path, **options)
    url = browser.show("long.wshard", path.read_bytes())
    browser.run("return 0")
    before = browser.server.sent_bytes
    found = browser.run("return tell.window(given, 'signal/cam', [600, 620])", url)
    assert found == ["u8", [20, 2000], sha256(noise[600:620].tobytes())]
    assert browser.server.sent_bytes - before < path.stat().st_size / 5


@pytest.mark.parametrize("options", ["{}", "{compression: 'zstd'}", "{compression: 'lz4', seal: true}"])
def test_python_reads_files_of_a_page(browser: Browser, options: str, tmp_path: Path) -> None:
    source, written = tmp_path / "a.wshard", tmp_path / "b.wshard"
    save_wshard(full_episode(), source)
    url = browser.show("a.wshard", source.read_bytes())
    script = """const episode = await wshard.loadWShard(given);
        const {bytes} = await wshard.encodeWShard({...episode, origin: null}, OPTIONS);
        const url = await new Promise((done) => {
            const reader = new FileReader();
            reader.onload = () => done(reader.result);
            reader.readAsDataURL(new Blob([bytes]));
        });
        return url.split(",")[1];"""
    written.write_bytes(base64.b64decode(browser.run(script.replace("OPTIONS", options), url)))
    same_episode(load_wshard(written), full_episode())
    assert identity(written) == identity(source)
    assert reference.strict_problems(written.read_bytes()) == []
    if options == "{}":
        assert written.read_bytes() == source.read_bytes()
    with open_wshard(written) as file:
        assert file["signal/state"].read().tobytes() == full_episode().lanes()["signal/state"].data.tobytes()


def test_page_writes_a_new_episode(browser: Browser, tmp_path: Path) -> None:
    """Without a file from Python."""
    script = """const state = wshard.channel("state", Float32Array.of(1, 2, 3, 4, 5, 6), [2]);
        const {bytes} = await wshard.encodeWShard({id: "made", length: 3, observations: new Map([["state", state]])});
        return [...bytes];"""
    path = tmp_path / "a.wshard"
    path.write_bytes(bytes(browser.run(script)))
    episode = load_wshard(path)
    assert (episode.id, episode.length) == ("made", 3)
    assert episode.observations["state"].data.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_page_of_the_readme_works(browser: Browser, tmp_path: Path) -> None:
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    (html,) = re.findall(r"```html\n(.*?)```", readme, re.DOTALL)
    html = html.replace("/node_modules/@warpdata/wshard/", "/lake/library/")
    html = html.replace('"/node_modules/', '"/lake/library/node_modules/')
    save_wshard(full_episode(), tmp_path / "a.wshard", compression="zstd")
    browser.show("ep_000.wshard", (tmp_path / "a.wshard").read_bytes())
    assert browser.title(browser.show("readme.html", html.encode())) == "full: 40 steps"


DRAW = """const file = await wshard.openWShard(given.url);
    const [index, block] = [await file.frameIndex("signal/cam"), file.block("signal/cam")];
    const frame = index.frameAt(BigInt(given.time));
    const parts = await block.readFrames(index, frame);
    const canvas = new OffscreenCanvas(given.width, given.height);
    const draw = (image) => {
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return [frame, [...context.getImageData(0, 0, given.width, given.height).data]];
    };
    if (index.codec === "jpeg" || index.codec === "png") {
        return draw(await createImageBitmap(new Blob([parts[0].data], {type: `image/${index.codec}`})));
    }
    const config = wshard.decoderConfig(index);
    if (!(await VideoDecoder.isConfigSupported(config)).supported) { return [config.codec, null]; }
    let answer = null;
    const decoder = new VideoDecoder({
        error: (error) => { answer = [String(error), null]; },
        output: (image) => {
            if (image.timestamp === Number(index.timesNs[frame] / 1000n)) { answer = draw(image); }
            image.close();
        },
    });
    decoder.configure(config);
    for (const {data, timeNs, isKey} of parts) {
        const timestamp = Number(timeNs / 1000n);
        decoder.decode(new EncodedVideoChunk({type: isKey ? "key" : "delta", timestamp, data}));
    }
    await decoder.flush();
    return answer;"""


def drawn(browser: Browser, path: Path, time_ns: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the number and the pixels of the frame at a time, or a codec that the browser does not support."""
    url = browser.show("video.wshard", path.read_bytes())
    height, width = shape[:2]
    frame, pixels = browser.run(DRAW, {"url": url, "time": str(time_ns), "width": width, "height": height})
    return frame, None if pixels is None else np.array(pixels, np.int16).reshape(height, width, 4)[..., :3]


def test_page_draws_the_image_at_a_time(browser: Browser, tmp_path: Path) -> None:
    images = [np.full((6, 8, 3), value, np.uint8) for value in (10, 90, 200)]
    channel, block = index_images([encode_test_image(image, "PNG") for image in images], [0, 100, 250], "cam")
    episode = Episode("p", 3, observations={"cam": channel}, extra={frames_block("signal/cam"): block})
    save_wshard(episode, tmp_path / "a.wshard")
    for time_ns, number in ((0, 0), (99, 0), (100, 1), (249, 1), (999, 2)):
        frame, pixels = drawn(browser, tmp_path / "a.wshard", time_ns, images[0].shape)
        assert frame == number
        np.testing.assert_array_equal(pixels, images[number])


@pytest.mark.parametrize("scene", [SCENES[0], SCENES[2], SCENES[5]], ids=str)
def test_page_draws_the_frame_of_a_video_at_a_time(browser: Browser, scene: Scene, tmp_path: Path) -> None:
    path = with_video(scene, tmp_path)
    with open_wshard(path) as file:
        times = FrameReader(file, "signal/cam").index.times_ns.tolist()
    for number in (0, 13, len(times) - 1):
        expected = scene.decoded[number][1]
        frame, pixels = drawn(browser, path, times[number], expected.shape)
        if pixels is None:
            pytest.skip(f"this browser does not decode {frame}")
        assert frame == number
        # Browsers convert colors in another way.
        assert np.abs(pixels - expected.astype(np.int16)).mean() < 8


def test_unsupported_operations_raise_typed_errors(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    kind = "return wshard.loadWShard(given).then(() => null, (error) => error.kind)"
    assert browser.run(kind, browser.show("bad.wshard", bytes(data))) == "corrupt"
    assert browser.run(kind, "/lake/nothing.wshard") == "object_not_found"
    saving = """const episode = await wshard.loadWShard(given);
        return wshard.saveWShard(episode, "a.wshard").then(() => null, (error) => error.kind);"""
    assert browser.run(saving, browser.show("a.wshard", path.read_bytes())) == "unsupported"
