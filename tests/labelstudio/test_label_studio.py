"""If this fails, people who label with Label Studio cannot open a version, or their labels do not come back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.labelstudio.conftest import COLORS, HOLE, INTERFACE, PROGRAM, SIZE, Platform, Studio, label_studio
from warpdata.collections import Box, Collection, InboxEntry, InboxFiles

playwright = pytest.importorskip("playwright.sync_api", reason="`make test-labelstudio` installs playwright")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PROGRAM.exists(), reason="`make test-labelstudio` installs Label Studio"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed on this machine"),
]
BOX = (64, 48, 320, 240)
"""Left, top, right and bottom of the box that is drawn, in pixels of the image."""


def test_a_version_is_labelled_and_its_labels_come_back(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "studio"
    with label_studio(directory, protects_addresses=False) as studio:
        project, tasks = connect(studio, platform)
        check_presigned_bytes(studio, platform, tasks[1])
        with signed_in(studio) as page:
            open_task(page, studio, project, tasks[1]["id"])
            check_pixels(page, COLORS[1])
            annotation = draw_box(page)
        entry = wait_for_label(platform, str(annotation["id"]))
        check_label(platform, entry, "cats/cat1.png")
        merge_label(platform, entry, "cats/cat1.png")
        checks = run_wizard(platform, studio)
        assert {one["check"]: one["status"] for one in checks if one["status"] != "ok"} == {}
        assert {"storage", "webhook", "browser"} <= {one["check"] for one in checks}
    with label_studio(directory, protects_addresses=True) as studio:
        checks = run_wizard(platform, studio)
        failed = {one["check"]: one["next_step"] for one in checks if one["status"] == "failed"}
        assert set(failed) == {"storage", "webhook"}
        assert all("SSRF_PROTECTION_ENABLED=false" in step for step in failed.values())


def connect(studio: Studio, platform: Platform) -> tuple[int, list[dict[str, Any]]]:
    """Make a project with the version as source and the inbox as target, and synchronize it twice."""
    status, made = studio.call("POST", "/api/projects", {"title": "pets", "label_config": INTERFACE})
    assert status == 201
    project = made["id"]
    source = platform.storage(
        project, "pets/v1/images", use_blob_urls=True, recursive_scan=True, presign=True, presign_ttl=15
    )
    target = platform.storage(project, "pets/v1/inbox/project")
    for path, storage in (("s3", source), ("export/s3", target)):
        assert studio.call("POST", f"/api/storages/{path}/validate", storage)[0] == 200
        status, saved = studio.call("POST", f"/api/storages/{path}", storage)
        assert status == 201
        if path == "s3":
            for _ in range(2):  # the second finds nothing new
                status, synced = studio.call("POST", f"/api/storages/s3/{saved['id']}/sync")
                assert (status, synced["status"]) == (200, "completed")
    status, listed = studio.call("GET", f"/api/tasks?project={project}")
    assert listed["total"] == len(platform.images)
    names = sorted(task["storage_filename"] for task in listed["tasks"])
    assert names == [f"pets/v1/images/{path}" for path in platform.images]
    return project, sorted(listed["tasks"], key=lambda task: str(task["storage_filename"]))


def check_presigned_bytes(studio: Studio, platform: Platform, task: dict[str, Any]) -> None:
    """Follow the address of a task as a browser does."""
    status, answer = studio.call("GET", task["data"]["image"])
    assert status == 303
    location = answer.headers["Location"]
    assert location.startswith(f"{platform.endpoint}/acme/pets/v1/images/")
    got = studio.http.request("GET", location, headers={"Origin": studio.url})
    assert (got.status, got.headers["Content-Type"]) == (200, "image/png")
    assert got.headers["Access-Control-Allow-Origin"] == "*"
    assert got.data == platform.images[task["storage_filename"].removeprefix("pets/v1/images/")]


@contextmanager
def signed_in(studio: Studio) -> Iterator[Any]:
    """Yield a page of Chromium whose user has signed in."""
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        page.goto(f"{studio.url}/user/login/")
        page.fill("input[name=email]", studio.email)
        page.fill("input[name=password]", studio.password)
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "login" not in url, wait_until="commit")
        yield page
        browser.close()


IMAGE = (
    "() => [...document.querySelectorAll('img')].find(one => one.naturalWidth === 640 && one.src.startsWith('blob:'))"
)


def open_task(page: Any, studio: Studio, project: int, task: int) -> None:
    page.goto(f"{studio.url}/projects/{project}/data?task={task}")
    page.wait_for_function(f"() => !!({IMAGE})()")
    page.wait_for_selector("canvas")


def place_of_image(page: Any) -> tuple[float, float, float, float]:
    x, y, width, height = page.evaluate(
        f"() => {{ const box = ({IMAGE})().getBoundingClientRect(); return [box.x, box.y, box.width, box.height] }}"
    )
    return x, y, width, height


def check_pixels(page: Any, color: tuple[int, int, int]) -> None:
    """Wait until the editor shows the image in its colours: the hole is white, and what is around it is not."""
    expected = {(20, 20): color, (600, 460): color, (300, 225): (255, 255, 255), (HOLE[0] - 8, 225): color}
    seen: dict[tuple[int, int], Any] = {}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        x, y, width, height = place_of_image(page)
        shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
        seen = {
            at: shot.getpixel((int(x + at[0] * width / SIZE[0]), int(y + at[1] * height / SIZE[1]))) for at in expected
        }
        if all(max(abs(a - b) for a, b in zip(seen[at], expected[at], strict=True)) <= 3 for at in expected):
            return
        page.wait_for_timeout(200)
    pytest.fail(f"the editor shows {seen}, not {expected}")


def draw_box(page: Any) -> dict[str, Any]:
    """Draw a box of the class `cat`, save it, and return the annotation as Label Studio has it."""
    page.get_by_text("cat", exact=True).first.click()
    x, y, width, height = place_of_image(page)
    corners = [(x + BOX[at] * width / SIZE[0], y + BOX[at + 1] * height / SIZE[1]) for at in (0, 2)]
    page.mouse.move(*corners[0])
    page.mouse.down()
    page.mouse.move((corners[0][0] + corners[1][0]) / 2, (corners[0][1] + corners[1][1]) / 2, steps=5)
    page.mouse.move(*corners[1], steps=5)
    page.mouse.up()
    with page.expect_response(lambda got: "/annotations" in got.url and got.request.method == "POST") as saved:
        page.get_by_role("button", name="Submit").click()
    assert saved.value.status == 201
    annotation: dict[str, Any] = saved.value.json()
    assert len(annotation["result"]) == 1
    return annotation


def wait_for_label(platform: Platform, name: str) -> InboxEntry:
    """Return the entry of the inbox, which Label Studio sends after it has saved."""
    inbox, deadline = InboxFiles(platform.service.session, "acme/pets"), time.monotonic() + 60
    while time.monotonic() < deadline:
        entry = inbox.find("v1", f"project/{name}")
        if entry is not None:
            return entry
        time.sleep(0.2)
    pytest.fail(f"no label arrived; the inbox has {inbox.files()}")


def check_label(platform: Platform, entry: InboxEntry, path: str) -> None:
    label = json.loads(entry.content())
    assert label["task"]["data"]["image"] == f"s3://acme/pets/v1/images/{path}"
    assert entry.version == platform.service.open("acme/pets", "v1")[0].version
    assert entry.author == "ana"
    (region,) = label["result"]
    assert (region["original_width"], region["original_height"]) == SIZE
    assert region["value"]["rectanglelabels"] == ["cat"]
    value = region["value"]
    left, top = value["x"] * SIZE[0] / 100, value["y"] * SIZE[1] / 100
    right, bottom = left + value["width"] * SIZE[0] / 100, top + value["height"] * SIZE[1] / 100
    assert (left, top, right, bottom) == pytest.approx(BOX, abs=2)


def merge_label(platform: Platform, entry: InboxEntry, path: str) -> None:
    """Make the label an item of the inbox, accept it, and see one object more than in the version."""
    pets = Collection(platform.service.session, "acme/pets")
    (item,) = pets.inbox.receive(entry.content(), "label-studio", version=entry.version)
    review = pets.inbox.review(item).item
    assert (review.state, review.path, review.base) == ("clean", path, entry.version)
    pets.inbox.accept(item)
    difference = pets.compare("v1")
    assert difference.annotations == (0, 1)
    assert (difference.added_annotations, difference.removed_annotations) == (1, 0)
    (annotation,) = pets.annotations(path)
    assert isinstance(annotation, Box)
    drawn = (annotation.x, annotation.y, annotation.x + annotation.width, annotation.y + annotation.height)
    assert drawn == pytest.approx(BOX, abs=2)


def run_wizard(platform: Platform, studio: Studio) -> list[dict[str, Any]]:
    """Run `warp labels check` as a user does."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "AWS_ACCESS_KEY_ID": platform.key.row.access_key,
        "AWS_SECRET_ACCESS_KEY": platform.key.secret,
        "LABEL_STUDIO_API_KEY": studio.token,
    }
    command = [sys.executable, "-m", "warpdata.cli", "labels", "check", platform.endpoint, "acme/pets@v1", "--json"]
    done = subprocess.run(
        [*command, "--label-studio", studio.url],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    report = json.loads(done.stdout)
    assert report["ok"] is (done.returncode == 0), done.stderr
    checks: list[dict[str, Any]] = report["checks"]
    return checks
