"""If this fails, a person merges labels that were not shown, loses an upload, or changes another selection."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image

import warpdata as wd
from tests.page.conftest import (
    DATABASES,
    OpenPage,
    Site,
    Watch,
    make_users,
    name_of,
    publish_street,
    publish_trips,
    serving,
)
from tests.page.labels import STREET, SentLabels, Studio, send_labels, studio
from tests.page.test_walk import accessibility_problems, settle

LABELLING = "/d/acme/street/labelling"


@pytest.fixture(scope="module")
def returned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, SentLabels]]:
    """A service of its own whose inbox has labels, because these tests change it."""
    root = tmp_path_factory.mktemp("labelling")
    store = str(root / "store")
    publish_street(store, "acme/street", 24)
    publish_trips(store)
    with serving(root, store, "--allow-network", "127.0.0.1") as site:
        yield site, send_labels(site)


@pytest.fixture(scope="module")
def tool() -> Iterator[Studio]:
    with studio() as found:
        yield found


def check_page(page: Any) -> None:
    found = accessibility_problems(page)
    assert not found, "\n".join(found)


def waiting(site: Site) -> dict[str, int]:
    found: dict[str, int] = site.get(f"{STREET}/inbox")["counts"]
    return found


def test_the_inbox_shows_each_state_and_is_accessible(open_page: OpenPage, returned: tuple[Site, SentLabels]) -> None:
    site, sent = returned
    page = open_page(site, LABELLING)
    page.get_by_test_id("preview").wait_for()
    settle(page)
    assert waiting(site) == {"clean": 3, "conflict": 1, "stale": 1, "unchanged": 0}
    states = [one.get_attribute("data-state") for one in page.get_by_test_id("inbox-item").all()]
    assert sorted(states) == ["clean"] * 3 + ["conflict", "stale"]
    check_page(page)
    page.get_by_test_id("state-stale").click()
    page.get_by_text("HEAD has another image under this path, or none.").wait_for()
    assert page.get_by_role("button", name="Accept into HEAD").count() == 0
    page.reload()
    page.get_by_text(sent.stale[0]).first.wait_for()
    check_page(page)


def test_a_merge_leads_to_the_diff_that_the_api_shows(open_page: OpenPage, returned: tuple[Site, SentLabels]) -> None:
    site, sent = returned
    before = site.get(f"{STREET}/head")["version"]
    page = open_page(site, f"{LABELLING}?state=clean")
    page.get_by_test_id("merge-counts").wait_for()
    assert page.get_by_test_id("merge-counts").inner_text() == "+1 −0, 0 conflicts"
    shown = page.get_by_test_id("preview").get_by_role("heading").inner_text()
    assert shown in sent.clean
    assert site.get(f"{STREET}/head")["version"] == before
    page.get_by_role("button", name="Accept into HEAD").click()
    merged = page.get_by_test_id("merged")
    merged.get_by_role("link", name="See what changed").click()
    page.get_by_test_id("change").wait_for()
    after = site.get(f"{STREET}/head")["version"]
    found = site.get(f"{STREET}/object-diff?from={before}&to={after}")
    assert found["counts"]["added"] == 1
    assert [one["path"] for one in found["images"]] == [shown]
    assert page.get_by_test_id("change").get_attribute("data-path") == shown
    assert f"from={before}" in page.url
    assert f"to={after}" in page.url


def test_conflicts_are_decided_by_a_person_and_others_are_accepted_together(
    open_page: OpenPage, returned: tuple[Site, SentLabels]
) -> None:
    site, sent = returned
    page = open_page(site, f"{LABELLING}?state=conflict")
    conflict = page.get_by_test_id("conflict")
    conflict.first.wait_for()
    accept = page.get_by_role("button", name="Accept into HEAD")
    assert accept.is_disabled()
    for at in range(conflict.count()):
        conflict.nth(at).get_by_label("Take the annotator", exact=False).check()
    accept.click()
    page.get_by_test_id("merged").wait_for()
    classes = [one.class_name for one in wd.connect(site.store).collection("acme/street").annotations(sent.conflict[0])]
    assert "bus" in classes
    page.goto(f"{site.url}{LABELLING}")
    page.get_by_role("button", name="Accept all 2 without conflicts").click()
    page.get_by_test_id("merged").get_by_text("Merged 2 labels").wait_for()
    assert waiting(site) == {"clean": 0, "conflict": 0, "stale": 1, "unchanged": 0}
    page.get_by_role("button", name="Reject…").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("the image is another one")
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    page.get_by_text("No label waits.").wait_for()
    assert len(site.get(f"{STREET}/inbox?state=rejected")["items"]) == 1


def test_a_label_that_arrives_appears_without_a_reload(open_page: OpenPage, returned: tuple[Site, SentLabels]) -> None:
    from tests.page.labels import document, send

    site, _ = returned
    page = open_page(site, LABELLING)
    page.get_by_text("No label waits.").wait_for()
    collection = wd.connect(site.store).collection("acme/street")
    drawn = [*collection.annotations(name_of(9)), wd.Box("dog", 10, 240, 40, 30)]
    send(site, document(collection, name_of(9), drawn, "HEAD", "ann@example.com"))
    page.get_by_test_id("inbox-item").wait_for(timeout=5000)
    assert page.get_by_test_id("inbox-item").get_attribute("data-state") == "clean"


def test_a_tool_is_connected_checked_and_gets_a_batch(
    chromium: Any, watch: Watch, returned: tuple[Site, SentLabels], tool: Studio
) -> None:
    site, _ = returned
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(20_000)
    page = watch.over(context, site.url)
    page.goto(site.sign_in_url)  # only a person who signed in makes a key
    page.wait_for_selector("[data-testid=card]")
    page.goto(f"{site.url}{LABELLING}?part=connections")
    page.get_by_role("textbox", name="Address").fill(tool.url)
    page.get_by_label("Token of a user there").fill("t" * 40)
    page.get_by_role("button", name="Connect", exact=True).click()
    card = page.get_by_test_id("connection")
    card.get_by_role("button", name="Check").click()
    page.wait_for_function("() => document.querySelectorAll('[data-testid=check]').length === 7", timeout=60_000)
    found = {
        one.inner_text().split()[0]: one.get_attribute("data-status") for one in page.get_by_test_id("check").all()
    }
    assert set(found.values()) == {"ok"}, found
    check_page(page)
    tool.refuses_private = True
    card.get_by_role("button", name="Check").click()
    page.get_by_text("SSRF_PROTECTION_ENABLED=false", exact=False).first.wait_for(timeout=60_000)
    page.get_by_role("button", name="Send a batch…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Title").fill("second pass")
    dialog.get_by_role("button", name="Send").click()
    page.get_by_test_id("batch").get_by_text("0 of", exact=False).wait_for()
    head = wd.connect(site.store).collection("acme/street").head
    page.get_by_text(f"0 of {head.table('images').count()}").wait_for(timeout=30_000)
    assert {one["data"]["version"] for one in tool.tasks} == {head.version}
    context.close()


def test_a_selection_is_tagged_and_all_that_match_are_moved(
    open_page: OpenPage, returned: tuple[Site, SentLabels]
) -> None:
    site, _ = returned
    page = open_page(site, "/d/acme/street/browse?filter=split%20%3D%20'val'")
    page.wait_for_selector("[role=option] img")
    page.get_by_test_id("grid").focus()
    page.keyboard.press("x")
    bar = page.get_by_test_id("selection")
    bar.get_by_role("button", name="Tag…").click()
    page.get_by_role("dialog").get_by_label("Add tags", exact=False).fill("look again")
    page.get_by_role("dialog").get_by_role("button", name="Tag", exact=True).click()
    page.wait_for_selector("dialog", state="detached")
    rows = wd.connect(site.store).collection("acme/street").head.table("images").raw().to_arrow().to_pylist()
    assert sum("look again" in one["tags"] for one in rows) == 1
    held = sum(one["split"] == "val" for one in rows)
    page.wait_for_selector("[role=option] img")
    page.get_by_test_id("grid").focus()
    page.keyboard.press("x")
    bar.get_by_role("button", name=f"Select all {held} matching").click()
    bar.get_by_role("button", name="Move…", exact=True).click()
    page.get_by_role("dialog").get_by_label("Split").fill("test")
    page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
    page.get_by_text("No sample matches.").wait_for()
    rows = wd.connect(site.store).collection("acme/street").head.table("images").raw().to_arrow().to_pylist()
    assert sum(one["split"] == "val" for one in rows) == 0


def test_a_query_becomes_a_version(open_page: OpenPage, returned: tuple[Site, SentLabels]) -> None:
    site, _ = returned
    query = "SELECT * FROM \"acme/trips\" WHERE city = 'Oslo'"
    page = open_page(site, "/sql")
    page.get_by_label("Query").fill(query)
    page.get_by_role("button", name="Run").click()
    page.get_by_test_id("sql-rows").wait_for()
    view = page.get_by_role("link", name="Open as a view").get_attribute("href")
    assert "filter=city" in view
    page.get_by_role("button", name="Make a version…").click()
    page.get_by_role("dialog").get_by_label("Dataset").fill("acme/oslo")
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    page.get_by_test_id("published").wait_for(timeout=60_000)
    made = wd.connect(site.store).dataset("acme/oslo")
    assert (
        made.table("main").count()
        == wd.connect(site.store).dataset("acme/trips").table("main").filter("city = 'Oslo'").count()
    )
    assert query in made.history(1)[0].message


def test_a_webhook_is_made_tested_and_sent_again(
    open_page: OpenPage, returned: tuple[Site, SentLabels], tool: Studio
) -> None:
    site, _ = returned
    page = open_page(site, "/admin/webhooks?workspace=acme")
    page.get_by_role("textbox", name="Address").fill(f"{tool.url}/hook")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("whsec_", exact=False).wait_for()
    page.get_by_role("button", name="Test").click()
    page.get_by_test_id("delivery").first.wait_for()
    page.wait_for_timeout(2500)
    page.reload()
    page.get_by_test_id("delivery").get_by_text("delivered").wait_for()
    page.get_by_role("button", name="Send again").click()
    page.get_by_text("It is sent again").wait_for()
    assert sum(path == "/hook" for _, path, _ in tool.calls) >= 1


def test_garbage_is_shown_by_dataset_and_nothing_is_deleted(
    open_page: OpenPage, returned: tuple[Site, SentLabels]
) -> None:
    site, _ = returned
    page = open_page(site, "/admin/garbage")
    page.get_by_role("button", name="Look what would be freed").click()
    page.get_by_test_id("garbage").wait_for(timeout=60_000)
    job = next(one for one in site.get("/jobs")["jobs"] if one["kind"] == "gc")
    assert (job["result"]["dry_run"], job["result"]["deleted_count"]) == (True, 0)


def image(at: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), (at, 255 - at, 128)).save(out, "PNG")
    return out.getvalue()


def files() -> list[dict[str, Any]]:
    """Return 200 files, three of which are bad."""
    good = [{"name": f"{at:03}.png", "mimeType": "image/png", "buffer": image(at)} for at in range(197)]
    huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (40_000).to_bytes(4, "big") * 2 + b"\x08\2\0\0\0"
    script = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    bad = [("..", image(7)), ("huge.png", huge), ("chart.svg", script)]
    return [*good, *({"name": name, "mimeType": "image/png", "buffer": data} for name, data in bad)]


@contextmanager
def service(database_url: str, store: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `warp serve` on a port of its own, so that it comes back under its address."""
    environment = {**os.environ, "WARP_DATABASE": database_url, "WARP_STORE": store}
    command = [sys.executable, "-m", "warpdata.cli", "serve", "--port", str(port), "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    if httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=1).status_code == 200:
                        break
                except httpx2.HTTPError:
                    time.sleep(0.1)
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(300)
def test_an_upload_survives_a_killed_service_and_a_reload_and_lists_bad_files(
    open_page: OpenPage, tmp_path: Path, watch: Watch
) -> None:
    watch.expected += ["422", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_SOCKET"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store, data, database_url = str(tmp_path / "store"), files(), DATABASES.new(tmp_path)
    site = Site(f"http://127.0.0.1:{port}", store, "", make_users(store, database_url))
    with service(database_url, store, port) as process:
        page = open_page(site, "/")
        page.get_by_test_id("files").set_input_files(data)
        page.get_by_role("dialog").get_by_label("Name").fill("acme/pets")
        page.get_by_role("button", name="Create").click()
        page.wait_for_function(
            "() => Number(document.querySelector('[data-testid=upload-progress]')?.innerText.split(' ')[0]) > 40"
        )
        process.send_signal(signal.SIGKILL)
        process.wait()
        page.get_by_test_id("upload-waiting").wait_for()
    with service(database_url, store, port):
        page.wait_for_function("() => !document.querySelector('[data-testid=upload-waiting]')", timeout=60_000)
        page.reload()  # half-way, once more
        page.get_by_test_id("interrupted").wait_for()
        page.get_by_test_id("files").set_input_files(data)
        refused = page.get_by_test_id("refused")
        page.get_by_role("button", name="Add 197 images to HEAD").wait_for(timeout=120_000)
        assert "3 files refused" in refused.inner_text()
        for name in ("..", "huge.png", "chart.svg"):
            assert name in refused.inner_text()
        assert "pixels" in refused.inner_text()
        page.get_by_role("button", name="Add 197 images to HEAD").click()
        page.get_by_test_id("uploaded").wait_for(timeout=60_000)
    head = wd.connect(store).collection("acme/pets").head
    found = {one.path: head.artifact("images").read(one.path) for one in head.artifact("images").members()}
    assert found == {one["name"]: one["buffer"] for one in data[:197]}
