"""The page in a real browser, over a real service: `warp serve`, opened by the link that it prints.

`make test-web` builds the page and runs these tests. They need Chromium (`apt install chromium`) and the extra
`browser`. Any error in the console, any breach of the content security policy and any request to another origin fails
the test that caused it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.kinds.artifacts.media import Scene
from tests.kinds.episodes.filmed import H264, Filmed, jpegs
from tests.page.street import draw_scene, draw_tile
from tests.server.postgresql import new_database, running_postgresql
from tests.server.robots import publish_robots
from warpdata.server import (
    NewToken,
    Place,
    Role,
    Scope,
    create_token,
    create_user,
    first_user,
    open_service,
    set_role,
    synchronize,
)
from warpdata.wshard import Channel, ChunkPlace, Episode, Timebase, save_wshard

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "warpdata" / "server" / "page" / "index.html"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--enable-precise-memory-info",
]
SCENES = 60
DRIVES = 120
MILLION = 1_000_000
TILES = 500
SCREEN = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--database", choices=("sqlite", "postgresql"), default="sqlite", help="of the services of pages")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass
class Site:
    """A running service with its store and the tokens of its users."""

    url: str
    store: str
    sign_in_url: str
    tokens: dict[str, str]

    def get(self, path: str, user: str = "admin") -> Any:
        """Return what the API answers to a user."""
        answer = httpx2.get(f"{self.url}/api/v1{path}", headers={"Authorization": f"Bearer {self.tokens[user]}"})
        return answer.raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a document as the administrator."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        return httpx2.post(f"{self.url}/api/v1{path}", headers=headers, json=body).raise_for_status().json()


@dataclass
class Databases:
    """Where the services of a run keep their databases: files, or one server."""

    server_url: str | None = None

    def new(self, root: Path) -> str:
        """Return the URL of an empty database."""
        return f"sqlite:///{root}/service.db" if self.server_url is None else new_database(self.server_url)


DATABASES = Databases()


@pytest.fixture(scope="session", autouse=True)
def databases(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start the database server that `--database` asks for."""
    with running_postgresql() if request.config.getoption("--database") == "postgresql" else nullcontext() as url:
        DATABASES.server_url = url
        yield


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service over `acme/street`, `acme/drives`, `acme/trips` and `rival/secret`, whose owner is `rita`."""
    root = tmp_path_factory.mktemp("site")
    store = str(root / "store")
    publish_street(store, "acme/street", SCENES)
    publish_street(store, "rival/secret", 4)
    publish_trips(store)
    publish_drives(store, DRIVES)
    publish_robots(store, length=120)
    with serving(root, store) as found:
        yield found


@pytest.fixture(scope="session")
def million(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service over a table of a million rows, which refer to five hundred images, and one of a million vectors."""
    root = tmp_path_factory.mktemp("million")
    store = str(root / "store")
    files = {f"tiles/{at:04}.png": draw_tile(at) for at in range(TILES)}
    builder = wd.DatasetBuilder("acme/million", store).add_table("main", million_rows())
    builder.add_artifact("images", files, kind="files").bind("main", "path", "images", "image").publish("a million")
    wd.DatasetBuilder("acme/cloud", store).add_table("main", cloud_rows()).publish("a cloud")
    with serving(root, store) as found:
        yield found


@pytest.fixture(scope="session")
def long_episode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service over an episode of two million steps."""
    root = tmp_path_factory.mktemp("long")
    store = str(root / "store")
    length = 2_000_000
    joint = np.arange(length * 10, dtype=np.float32).reshape(length, 10)
    episode = Episode("drive", length, "Drive-v1", Timebase("ticks", 100.0), {"joint": Channel("joint", joint)})
    wd.DatasetBuilder("acme/long", store).add_episodes("drives", [episode]).publish("a long drive")
    with serving(root, store) as found:
        yield found


@pytest.fixture(scope="session")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service over episodes in other forms: videos, compressed blocks, files that follow each other, own rates."""
    root = tmp_path_factory.mktemp("forms")
    store, files = str(root / "store"), root / "files"
    files.mkdir()
    for name, scene in (("h264", H264), ("av1", Scene("libsvtav1", "mp4", {"g": "5"}))):
        Filmed(name, 40, files).add_video("cam", scene).save()
    for at, first in enumerate((0, 15)):
        place = ChunkPlace(at, 2, first)
        Filmed("chunked", (15, 25)[at], files, chunk=place).add_images("cam", jpegs((15, 25)[at], at)).save()
    times = np.cumsum(np.arange(30, dtype=np.int64) * 10_000_000)
    fast = Channel("fast", np.arange(900, dtype=np.float32), attributes={"sampling_rate_hz": 200})
    joint = Channel("joint", np.arange(90, dtype=np.float64).reshape(30, 3))
    made = Episode("timed", 30, "", Timebase("timestamps_ns"), {"joint": joint, "fast": fast}, timestamps_ns=times)
    save_wshard(made, files / "timed.wshard", compression="zstd", time_chunk_steps=16)
    save_wshard(replace(made, id="packed"), files / "packed.wshard", compression="lz4")
    builder = wd.DatasetBuilder("acme/forms", store).add_episodes("demos", str(files))
    builder.add_tensors("weights", {"big": np.arange(20_000_000, dtype=np.float32)}).publish("forms")
    with serving(root, store) as found:
        yield found


def million_rows() -> pa.Table:
    """The rows of `acme/million`: each time the same."""
    rng = np.random.default_rng(7)
    labels = np.array(["car", "person", "cat", "dog", "bus"])
    tiles = rng.integers(0, TILES, MILLION)
    return pa.table(
        {
            "path": np.array([f"tiles/{at:04}.png" for at in range(TILES)])[tiles],
            "label": labels[rng.choice(5, MILLION, p=[0.4, 0.3, 0.15, 0.1, 0.05])],
            "split": np.array(["train", "val", "test"])[rng.choice(3, MILLION, p=[0.8, 0.1, 0.1])],
            "score": rng.beta(4, 2, MILLION),
            "number": rng.integers(0, 10_000, MILLION),
        }
    )


def cloud_rows() -> pa.Table:
    """A million vectors in five clusters."""
    rng = np.random.default_rng(11)
    cluster = rng.integers(0, 5, MILLION)
    vectors = rng.normal(size=(MILLION, 8)).astype(np.float32) + 6 * rng.normal(size=(5, 8)).astype(np.float32)[cluster]
    names = np.array(["alder", "birch", "cedar", "elm", "fir"])[cluster]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8)
    return pa.table({"tree": names, "height": vectors[:, 0], "emb": column})


def publish_drives(store: str, scenes: int) -> None:
    """Publish drawn streets as a table with captions and vectors of what is in them. Every tenth is a copy."""
    rng = np.random.default_rng(4)
    files, captions, lights, cars = {}, [], [], []
    vectors: list[np.ndarray] = []
    for at in range(scenes):
        scene = draw_scene(at - 1 if at % 10 == 9 else at)
        files[f"drive/{at:04}.jpg"] = scene.data
        names = [one.class_name for one in scene.annotations]
        counts = [names.count(name) for name in ("car", "bus", "person", "building")]
        places = [[scene.light == name] for name in ("day", "dusk", "night")]
        captions.append(f"{scene.light} street with {counts[0]} cars, {counts[1]} buses and {counts[2]} people")
        lights.append(scene.light)
        cars.append(counts[0])
        drawn = np.concatenate([np.array(counts) * [0.9, 1.2, 0.5, 0.2], np.ravel(places) * 3, np.zeros(5)])
        drawn += rng.normal(size=12) * 0.6
        vectors.append(vectors[-1] + 0.01 if at % 10 == 9 else drawn)
    column = pa.array([one.tolist() for one in vectors], pa.list_(pa.float32(), 12))
    rows = {"image": list(files), "caption": captions, "light": lights, "cars": cars, "emb": column}
    builder = wd.DatasetBuilder("acme/drives", store).add_table("main", pa.table(rows))
    builder.add_artifact("images", files, kind="files").bind("main", "image", "images", "image").publish("drives")


def publish_street(store: str, dataset_id: str, scenes: int) -> None:
    """Publish drawn streets in three commits, with two versions and two training jobs."""
    collection = wd.connect(store).collection(dataset_id)
    with collection.changes("first drive", author="ana") as change:
        for at in range(scenes):
            scene = draw_scene(at)
            split = ("train", "train", "train", "val", "test")[at % 5]
            change.add(name_of(at), scene.data, annotations=scene.annotations, split=split, tags=[scene.light])
    collection.create_version("v1")
    collection.start_training("detection", "yolo-nano", job_id="41", author="ana")
    with collection.changes("relabel buses as trucks", author="ben") as change:
        for at in range(0, scenes, 4):
            change.annotate(name_of(at), [relabelled(one) for one in draw_scene(at).annotations], replace=True)
    with collection.changes("more images, fewer doubles", author="ana") as change:
        for at in range(scenes, scenes + max(2, scenes // 10)):
            scene = draw_scene(at)
            change.add(name_of(at), scene.data, annotations=scene.annotations, split="train", tags=[scene.light])
        change.remove([name_of(at) for at in range(3, scenes, 20)])
    collection.create_version("v2")
    collection.start_training("segmentation", "mask-tiny", job_id="57", author="ben")
    collection.end_training("41")


def name_of(at: int) -> str:
    return f"{'north' if at % 3 else 'south'}/{at:04}.jpg"


def relabelled(found: Any) -> Any:
    """A bus becomes a truck, and its box a little smaller."""
    if isinstance(found, wd.Box) and found.class_name == "bus":
        return wd.Box("truck", found.x + 3, found.y + 2, found.width - 4, found.height - 2)
    return found


def publish_trips(store: str) -> None:
    rng = np.random.default_rng(1)
    cities = np.array(["Oslo", "Cairo", "Lima", "Quito"])[rng.integers(0, 4, 5000)]
    rows = pa.table(
        {"id": range(5000), "city": cities, "fare": rng.gamma(3, 8, 5000).round(2), "paid": rng.random(5000) < 0.5}
    )
    wd.DatasetBuilder("acme/trips", store).add_table("main", rows).publish("first load", label="v1", author="ana")
    with wd.connect(store).dataset("acme/trips").edit("correct fares") as edit:
        edit.append("main", {"id": [5000], "city": ["Oslo"], "fare": [9.5], "paid": [True]})
        edit.delete("main", where="fare > 90")


@contextmanager
def serving(root: Path, store: str, *options: str) -> Iterator[Site]:
    """Run `warp serve` over a store, with the users of the tests."""
    environment = {**os.environ, "WARP_DATABASE": DATABASES.new(root), "WARP_STORE": store}
    if DATABASES.server_url is not None:
        environment["WARP_S3_MASTER_KEY"] = "m" * 40
    tokens = make_users(store, environment["WARP_DATABASE"])
    command = [sys.executable, "-m", "warpdata.cli", "serve", "--port", "0", "--json", *options]
    log = root / "serve.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, b"}\n"))  # the document ends, and the service goes on
            assert lines, log.read_text(encoding="utf-8")
            running = json.loads(b"".join(lines) + b"}")
            yield Site(running["url"], store, running["sign_in_url"], tokens)
        finally:
            process.terminate()


def make_users(store: str, database_url: str) -> dict[str, str]:
    """Make the administrator and `rita`, who owns the workspace `rival`, and return their tokens."""
    with open_service(wd.connect(store), database_url) as service:
        synchronize(service)
        users = {"admin": first_user(service).id, "rita": create_user(service, "rita").id}
        set_role(service, users["rita"], Place("rival"), Role.OWNER)
        wanted = NewToken("test", Scope.MANAGE, 30)
        return {name: create_token(service, user, wanted).secret for name, user in users.items()}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, once for all tests."""
    api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    if not PAGE.is_file():
        pytest.skip("the page is not built: `make web`")
    if not Path(CHROMIUM).exists():
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watch:
    """What a browser complained about."""

    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Parts of complaints that a test causes on purpose."""

    def over(self, context: Any, origin: str) -> Any:
        """Return a new tab of which every complaint is kept."""
        page = context.new_page()
        page.on("console", self._check_message)
        page.on("pageerror", lambda one: self.complaints.append(f"error: {one}"))
        page.on("request", lambda one: self._check_origin(one.url, origin))
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            " one => console.error('CSP', one.violatedDirective, one.blockedURI))"
        )
        return page

    def _check_message(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text}")

    def _check_origin(self, url: str, origin: str) -> None:
        if not url.startswith((origin + "/", "blob:", "data:")):
            self.complaints.append(f"another origin: {url}")


@pytest.fixture
def watch() -> Iterator[Watch]:
    found = Watch()
    yield found
    left = [one for one in found.complaints if not any(part in one for part in found.expected)]
    assert not left


OpenPage = Callable[..., Any]


@pytest.fixture
def open_page(chromium: Any, watch: Watch) -> Iterator[OpenPage]:
    """Returns a function that opens an address of a site, signed in by a token's user, or by no one."""
    contexts: list[Any] = []

    def opened(site: Site, path: str, user: str | None = "admin", **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": SCREEN, **options})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
        context.set_default_timeout(15_000)
        contexts.append(context)
        if user is not None:  # the sign-in link works once, so all tabs but the first have a token
            context.set_extra_http_headers({"Authorization": f"Bearer {site.tokens[user]}"})
        page = watch.over(context, site.url)
        page.goto(site.url + path)
        return page

    yield opened
    for context in contexts:
        context.close()
