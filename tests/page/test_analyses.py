"""If this fails, a search, a statistic or a map on the page misstates the data, or leads to other samples."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest
from PIL import Image

import warpdata as wd
from tests.page.conftest import MILLION, PHONE, OpenPage, Site
from tests.page.test_browse import total, wait_for_total
from tests.page.test_walk import accessibility_problems, settle

DRIVES = "/d/acme/drives/browse"
_TILES = "[...document.querySelectorAll('[role=option]')]"
_FRAME_MS = 16.7
_SLACK = 5
"""How much slower than a quiet machine one that runs tests may be."""


def drives(site: Site) -> wd.Dataset:
    return wd.connect(site.store).dataset("acme/drives")


def shown_hits(page: Any) -> list[tuple[int, str]]:
    """Return the rows and scores of the tiles that are in view."""
    page.wait_for_selector("[role=option] [data-testid=score]")
    found = page.evaluate(
        f"() => {_TILES}.map(one => [Number(one.dataset.row), one.querySelector('[data-testid=score]').innerText])"
    )
    return [(row, score) for row, score in found]


def written(scores: list[float]) -> list[str]:
    return [f"{score:.3f}" if abs(score) >= 0.1 else f"{score:.2g}" for score in scores]


def test_a_search_for_words_shows_the_hits_of_the_library(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, DRIVES)
    page.wait_for_selector("[role=option] img")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_test_id("search").fill("night buses 2")
    page.keyboard.press("Enter")
    wanted = drives(site).search(text="night buses 2", column="caption", k=500)
    wait_for_total(page, len(wanted))
    shown = shown_hits(page)
    assert shown == list(zip(wanted.row_numbers.tolist(), written(wanted.scores), strict=True))[: len(shown)]
    address = page.url
    page.reload()
    assert shown_hits(page) == shown
    again = open_page(site, address.removeprefix(site.url))
    assert shown_hits(again) == shown
    page.goto(address + "&filter=" + quote("cars = 1"))
    kept = drives(site).search(text="night buses 2", column="caption", k=500, filter="cars = 1")
    wait_for_total(page, len(kept))
    assert [row for row, _ in shown_hits(page)] == kept.row_numbers.tolist()[: len(shown_hits(page))]


def test_an_example_image_finds_its_copies(open_page: OpenPage, site: Site, tmp_path: Path) -> None:
    dataset = drives(site)
    stored = dataset.artifact("images").read("drive/0018.jpg")
    small = Image.open(io.BytesIO(stored)).resize((240, 160))
    small.save(tmp_path / "example.png")
    page = open_page(site, DRIVES)
    page.wait_for_selector("[role=option] img")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_test_id("example").set_input_files(tmp_path / "example.png")
    page.wait_for_url("**near=image**like**")
    wanted = dataset.search(near=("image", tmp_path / "example.png"), k=500)
    shown = shown_hits(page)
    assert shown == list(zip(wanted.row_numbers.tolist(), written(wanted.scores), strict=True))[: len(shown)]
    assert {row for row, _ in shown[:2]} == {18, 19}, "the image, and its copy"
    page.reload()
    assert shown_hits(page) == shown


def test_near_duplicates_of_a_sample_are_those_of_the_library(open_page: OpenPage, site: Site) -> None:
    dataset = drives(site)
    page = open_page(site, DRIVES + "?sample=18")
    similar = page.get_by_test_id("similar")
    similar.get_by_test_id("duplicates").wait_for()
    for column, threshold in (("emb", 0.97), ("image", 0.9)):
        similar.get_by_label("Compare by").select_option(column)
        hits = dataset.search(near=(column, dataset.table().take([18])[column][0].as_py()), k=13)
        near = [row for row in hits.row_numbers.tolist() if row != 18]
        page.wait_for_function(
            "rows => JSON.stringify([...document.querySelectorAll('[data-testid=similar] [data-row]')]"
            ".map(one => Number(one.dataset.row))) === JSON.stringify(rows)",
            arg=near[:12],
        )
        pairs = dataset.duplicates("main", column, threshold=threshold).to_pylist()
        mine = {one["_id"] + one["_duplicate"] - 18 for one in pairs if 18 in (one["_id"], one["_duplicate"])}
        assert 19 in mine
        assert similar.get_by_test_id("duplicates").inner_text() == str(len(mine))
        marked = similar.locator("a.same").evaluate_all("all => all.map(one => Number(one.dataset.row))")
        assert set(marked) == mine
    similar.get_by_role("link", name="More like this").click()
    page.wait_for_url("**near=image%3Arow%3A18**")
    assert shown_hits(page)[0][0] in (18, 19)


def follow(page: Any, site: Site, href: str) -> int:
    """Open a link of the page in Browse, and return the number of samples."""
    page.goto(site.url + href)
    page.wait_for_selector("[data-testid=total] b:not(.old)")
    return total(page)


def test_numbers_of_the_statistics_equal_the_library_and_lead_to_their_samples(open_page: OpenPage, site: Site) -> None:
    collection = wd.connect(site.store).collection("acme/street")
    wanted = collection.distributions()
    quality = collection.quality()
    images = collection.head.table("images").raw().to_arrow().to_pylist()
    objects = collection.head.table("annotations").raw().to_arrow().to_pylist()
    split_of = {row["path"]: row["split"] for row in images}
    page = open_page(site, "/d/acme/street/statistics?by=images")
    page.get_by_test_id("heat").wait_for()
    settle(page)
    assert page.get_by_test_id("images").inner_text() == str(len(images)) == str(wanted.images)
    assert page.get_by_test_id("objects").inner_text() == str(len(objects)) == str(wanted.objects)
    cells = page.locator("[data-testid=classes] [data-cell]").evaluate_all(
        "all => all.map(one => [one.dataset.cell, Number(one.innerText.replace(/,/g, '')), one.getAttribute('href')])"
    )
    assert len(cells) == len(wanted.classes) * len(wanted.splits)
    for cell, count, _ in cells:
        name, split = cell.split("/")
        having = {row["image"] for row in objects if row["class_name"] == name}
        assert count == sum(split_of[path] == split for path in having)
    together = page.locator("[data-testid=together] [data-cell]").evaluate_all(
        "all => all.map(one => [one.dataset.cell, Number(one.innerText.replace(/,/g, '')), one.getAttribute('href')])"
    )
    for cell, count, _ in together:
        one, two = ({row["image"] for row in objects if row["class_name"] == name} for name in cell.split("/"))
        assert count == len(one & two)
    heat = page.locator("[data-testid=heat] a").evaluate_all(
        "all => all.map(one => [Number(one.dataset.count), one.getAttribute('href')])"
    )
    assert [count for count, _ in heat] == list(wanted.heat)
    checks = page.locator("[data-testid=quality] [data-check]").evaluate_all(
        "all => all.map(one => [one.dataset.check, Number(one.innerText)])"
    )
    assert checks == [[check, len(quality.paths(check))] for check in quality.counts if check != "near_leakage"]
    bars = page.locator("[data-testid=chart-size_bytes] a").evaluate_all(
        "all => all.map(one => [Number(one.dataset.count), one.getAttribute('href')])"
    )
    assert sum(count for count, _ in bars) == len(images)
    at = int(np.argmax(wanted.heat))
    rows = [[cells[0][1], cells[0][2]], [together[1][1], together[1][2]], max(bars)]
    for count, href in rows:
        assert follow(page, site, href) == count
    follow(page, site, heat[at][1])
    subset = parse_qs(urlsplit(heat[at][1]).query)["subset"][0]
    listed = site.get(f"/datasets/acme/street/samples?table=images&limit=1000&subset={quote(subset)}")
    assert total(page) == listed["total"] > 0
    for sample in listed["samples"]:
        path, width, height = (sample["values"][name] for name in ("path", "width", "height"))
        centres = [centre(row, width, height) for row in objects if row["image"] == path and row["kind"] != "label"]
        assert any(one is None or one == (at % 16, at // 16) for one in centres)


def centre(row: dict[str, Any], width: int, height: int) -> tuple[int, int] | None:
    """Return the cell of a box; None for other shapes."""
    if row["kind"] != "box":
        return None
    x, y, wide, high = row["box"]
    return int((x + wide / 2) / width * 16), int((y + high / 2) / height * 16)


def test_values_by_split_of_a_table_equal_a_count(open_page: OpenPage, million: Site) -> None:
    rows = wd.connect(million.store).dataset("acme/million").table().raw().select(["label", "split"]).to_arrow()
    labels, splits = (np.array(rows[name].to_pylist()) for name in ("label", "split"))
    page = open_page(million, "/d/acme/million/statistics")
    page.locator("[data-cell]").first.wait_for()
    cells = page.locator("[data-cell]").evaluate_all(
        "all => all.map(one => [one.dataset.cell, Number(one.innerText.replace(/,/g, '')), one.getAttribute('href')])"
    )
    assert len(cells) == 15
    for cell, count, _ in cells:
        label, split = cell.split("/")
        assert count == int(((labels == label) & (splits == split)).sum())
    assert follow(page, million, cells[4][2]) == cells[4][1]


def test_a_sample_names_the_commits_that_changed_it(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/d/acme/street/browse?sample=0")
    commits = page.get_by_test_id("commits")
    commits.locator("summary").click()
    commits.locator("[data-commit]").first.wait_for()
    sample = site.get("/datasets/acme/street/samples?table=images&limit=1")["samples"][0]
    found = site.get(f"/datasets/acme/street/samples/{sample['id']}/history?table=images")["changes"]
    shown = commits.locator("[data-commit]").evaluate_all("all => all.map(one => one.dataset.commit)")
    assert shown == [one["commit"]["commit"] for one in found]
    assert [one["commit"]["message"] for one in found][-1] == "first drive"


def test_similar_images_are_looked_for_by_a_job(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/d/acme/street/statistics")
    page.get_by_role("button", name="Look for similar images").click()
    page.locator("[data-check=near_leakage]").wait_for(timeout=60_000)
    assert "near=on" in page.url
    found = site.get("/datasets/acme/street/label-quality?near_bits=3")
    wanted = {one["check"]: one["images"] for one in found["checks"]}
    assert page.locator("[data-check=near_leakage]").inner_text() == str(wanted["near_leakage"])


def drawn(page: Any) -> int:
    return int(page.get_by_test_id("map").get_attribute("data-frames") or 0)


def wait_for_map(page: Any) -> Any:
    page.wait_for_function("() => Number(document.querySelector('[data-testid=map]')?.dataset.frames) > 0")
    return page.get_by_test_id("map").bounding_box()


def test_a_lasso_leads_to_exactly_the_rows_inside(open_page: OpenPage, site: Site) -> None:
    projection = drives(site).project("main", "emb")
    page = open_page(site, "/d/acme/drives/map?color=light")
    box = wait_for_map(page)
    assert page.get_by_test_id("points").inner_text() == str(len(projection.rows))
    lights = drives(site).table().raw().to_arrow()["light"].to_pylist()
    for name in ("day", "dusk", "night"):
        text = page.locator(f"[data-testid=legend] [data-value={name}]").inner_text()
        assert text.split()[-1] == str(lights.count(name))
    page.get_by_role("button", name="Lasso").click()
    middle, high = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(middle - 250, high - 20)
    page.mouse.down()
    for x, y in (
        (middle + 30, high - 40),
        (middle + 60, high + 300),
        (middle - 100, high + 180),
        (middle - 260, high + 280),
    ):
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    page.get_by_test_id("region").wait_for()
    count = int(page.get_by_test_id("region").locator("b").inner_text().split()[0])
    assert 0 < count < len(projection.rows)
    page.reload()
    page.get_by_test_id("region").wait_for()
    assert page.get_by_test_id("region").locator("b").inner_text().split()[0] == str(count)
    polygon = parse_qs(urlsplit(page.url).query)["region"][0]
    page.get_by_role("link", name="Open in Browse").click()
    wait_for_total(page, count)
    listed = site.get(f"/datasets/acme/drives/samples?limit=1000&subset=map:emb:{polygon}")["samples"]
    import base64

    corners = np.frombuffer(base64.urlsafe_b64decode(polygon + "=" * (-len(polygon) % 4)), "<u2")
    inside = projection.inside(corners.astype(np.int64).reshape(-1, 2))
    assert [one["row"] for one in listed] == inside.tolist()
    assert len(inside) == count
    page.go_back()
    page.get_by_test_id("region").wait_for()


def test_a_point_shows_its_image(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/d/acme/drives/map")
    box = wait_for_map(page)
    projection = drives(site).project("main", "emb")
    scale = (min(box["width"], box["height"]) - 24) / 65_535
    x, y = projection.points[40].astype(float)
    page.mouse.move(
        box["x"] + box["width"] / 2 + (x - 32_767.5) * scale, box["y"] + box["height"] / 2 - (y - 32_767.5) * scale
    )
    card = page.get_by_test_id("hover")
    card.locator("img").wait_for()
    row = int(card.get_attribute("data-row"))
    away = np.abs(projection.points[row].astype(float) - (x, y)).max()
    assert away * scale <= 9
    path = drives(site).table().raw().take([row])["image"][0].as_py()
    assert path in (card.locator("img").get_attribute("src") or "")


def test_the_map_works_with_keys_alone(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/d/acme/drives/browse")
    settle(page)
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/map")
    wait_for_map(page)
    page.get_by_role("application").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**view=**")
    page.keyboard.press("Enter")
    page.get_by_test_id("region").wait_for()
    page.keyboard.press("Escape")
    page.get_by_test_id("region").wait_for(state="detached")
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_url("**/statistics")


def test_another_users_map_does_not_exist(open_page: OpenPage, site: Site, watch: Any) -> None:
    watch.expected.append("404")
    for path in ("map", "statistics"):
        page = open_page(site, f"/d/acme/drives/{path}", user="rita")
        page.get_by_text("there is no dataset", exact=False).first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path",
    [
        "/d/acme/street/statistics",
        "/d/acme/trips/statistics",
        "/d/acme/drives/map",
        "/d/acme/street/map",
        DRIVES + "?near=emb:row:8&sample=1",
        DRIVES + "?text=night&in=caption",
        "/d/acme/street/browse?subset=cell:3:7&subset=class:car",
    ],
)
def test_new_pages_work_without_complaint(open_page: OpenPage, site: Site, path: str, scheme: str) -> None:
    page = open_page(site, path, color_scheme=scheme)
    settle(page)
    found = accessibility_problems(page)
    assert not found, "\n".join(found)
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_million_points_pan_smoothly(open_page: OpenPage, million: Site) -> None:
    """The first call computes the map by a job. Then each move of the pointer is one frame."""
    page = open_page(million, "/d/acme/cloud/map?color=tree")
    page.get_by_role("button", name="Compute the map").click()
    page.wait_for_function(
        "() => Number(document.querySelector('[data-testid=map]')?.dataset.frames) > 0", timeout=90_000
    )
    assert page.get_by_test_id("points").inner_text() == f"{MILLION:,}"
    sizes = page.evaluate(
        """() => performance.getEntriesByType('resource').filter(one => /map\\/(points|colors)/.test(one.name))
            .map(one => one.decodedBodySize)"""
    )
    assert sorted(sizes) == [MILLION, 4 * MILLION]
    page.get_by_role("button", name="Zoom in").click()
    box = page.get_by_test_id("map").bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 300)
    page.mouse.down()
    measured = page.evaluate(
        """async () => {
            const map = document.querySelector('[data-testid=map]')
            const spent = [], between = []
            let last = await new Promise(requestAnimationFrame)
            for (let step = 0; step < 60; step += 1) {
                const place = {clientX: 500 - 3 * step, clientY: 300 + step, bubbles: true, pointerId: 1}
                map.dispatchEvent(new PointerEvent('pointermove', place))
                const now = await new Promise(requestAnimationFrame)
                await new Promise(resolve => setTimeout(resolve))
                spent.push(Number(map.dataset.ms))
                between.push(now - last)
                last = now
            }
            return {spent, between, frames: Number(map.dataset.frames)}
        }"""
    )
    page.mouse.up()
    spent, between = (np.array(measured[name][2:]) for name in ("spent", "between"))
    print(
        f"\nmap: {json.dumps(sizes)} bytes; drawn in {np.median(spent):.1f} ms (P95 {np.quantile(spent, 0.95):.1f}), "
        f"a frame each {np.median(between):.1f} ms (P95 {np.quantile(between, 0.95):.1f})"
    )
    assert measured["frames"] >= 50
    assert np.median(spent) <= _FRAME_MS * _SLACK
