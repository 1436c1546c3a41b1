"""If this fails, the page misstates a change, makes one without saying what it breaks, or shows one user another's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import warpdata as wd
from tests.page.conftest import OpenPage, Site, Watch, name_of, publish_street, serving
from tests.page.test_walk import settle

STREET = "/datasets/acme/street"


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service of its own, because these tests change it."""
    root = tmp_path_factory.mktemp("changing")
    store = str(root / "store")
    publish_street(store, "acme/street", 24)
    with serving(root, store) as found:
        yield found


def numbers(page: Any, test_id: str) -> list[int]:
    text = page.get_by_test_id(test_id).inner_text()
    return [int(part.replace(",", "")) for part in text.split(" → ")]


def test_numbers_of_compare_equal_the_api_and_the_tables(open_page: OpenPage, changing: Site) -> None:
    collection = wd.connect(changing.store).collection("acme/street")
    before, after = (collection.dataset(ref) for ref in ("v1", "HEAD"))
    page = open_page(changing, "/d/acme/street/compare?from=v1")
    page.get_by_test_id("images").wait_for()
    assert numbers(page, "images") == [one.table("images").count() for one in (before, after)]
    assert numbers(page, "objects") == [one.table("annotations").count() for one in (before, after)]
    found = changing.get(f"{STREET}/compare?from=v1")
    assert numbers(page, "objects") == found["annotations"]
    page.get_by_test_id("change-reclassed").click()
    page.wait_for_url("**kind=change-reclassed**")
    objects = changing.get(f"{STREET}/object-diff?from=v1&change=reclassed&limit=100")
    page.get_by_text(f"{objects['total']} image", exact=False).first.wait_for()
    shown = page.evaluate("() => [...document.querySelectorAll('[data-testid=change]')].map(one => one.dataset.path)")
    assert shown == [one["path"] for one in objects["images"]][: len(shown)]
    assert shown


def test_numbers_of_the_overview_equal_the_tables(open_page: OpenPage, changing: Site) -> None:
    head = wd.connect(changing.store).collection("acme/street").head
    page = open_page(changing, "/d/acme/street")
    page.get_by_test_id("annotations").wait_for()
    assert numbers(page, "rows") == [head.table("images").count()]
    assert numbers(page, "annotations") == [head.table("annotations").count()]


def test_a_version_is_named_and_restored(open_page: OpenPage, changing: Site) -> None:
    page = open_page(changing, "/d/acme/street/versions")
    settle(page)
    panel = page.get_by_test_id("commit")
    panel.get_by_role("button", name="Name it…").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("good")
    page.get_by_role("button", name="Create").click()
    page.locator("ol").get_by_text("good", exact=True).wait_for()
    assert "good" in [one["name"] for one in changing.get(f"{STREET}/refs")["refs"]]
    head = changing.get(f"{STREET}/head")["version"]
    page.get_by_role("link", name="first drive", exact=False).click()
    page.wait_for_url("**commit=**")
    panel.get_by_role("button", name="Restore…").click()
    assert "Nothing is lost" in page.get_by_role("dialog").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="Restore", exact=True).click()
    page.wait_for_selector("dialog", state="detached")
    restored = changing.get(f"{STREET}/head")["version"]
    assert restored == changing.get(f"{STREET}/refs/v1")["version"]
    wd.connect(changing.store).dataset(f"acme/street@{head}").restore(branch="main")


def test_an_image_is_removed_from_head_and_versions_keep_it(open_page: OpenPage, changing: Site) -> None:
    path = name_of(5)
    page = open_page(changing, f"/d/acme/street/browse?filter=path%20%3D%20'{path}'&sample=0")
    page.get_by_role("button", name="Remove from HEAD…").click()
    assert "No version and no training snapshot changes" in page.get_by_role("dialog").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="Remove from HEAD").click()
    page.get_by_text("No sample matches.").wait_for()
    collection = wd.connect(changing.store).collection("acme/street")
    assert path not in collection.head.artifact("images")
    assert path in collection.dataset("v1").artifact("images")


def test_a_purge_says_what_it_breaks_refuses_a_stale_decision_and_gives_a_receipt(
    open_page: OpenPage, changing: Site, watch: Watch
) -> None:
    path = name_of(10)
    collection = wd.connect(changing.store).collection("acme/street")
    page = open_page(changing, f"/d/acme/street/integrity?purge={path}")
    sentence = page.get_by_test_id("sentence")
    sentence.wait_for()
    impact = collection.impact(path)
    assert f"HEAD and {len(impact.affected_versions)} versions will lose 1 image" in sentence.inner_text()
    assert f"{len(impact.affected_jobs)} training jobs saw it" in sentence.inner_text()
    erase = page.get_by_role("button", name="Erase from HEAD", exact=False)
    assert erase.is_disabled()
    page.get_by_label("Erase", exact=False).last.check()
    collection.create_version("late")  # after the impact was shown
    erase.click()
    watch.expected.append("409")
    page.get_by_role("alert").get_by_role("button", name="Try again").click()
    page.get_by_text(f"HEAD and {len(impact.affected_versions) + 1} versions", exact=False).first.wait_for()
    page.get_by_label("Reason").fill("request 12")
    page.get_by_label("Erase", exact=False).last.check()
    erase.click()
    receipt = page.get_by_test_id("receipt")
    receipt.wait_for(timeout=60_000)
    receipt.locator("summary").click()
    assert "request 12" in receipt.inner_text()
    assert "nothing remains" in receipt.inner_text()
    page.get_by_test_id("version-v1").get_by_text("repaired").wait_for()
    page.get_by_role("link", name="Runs").click()
    successor = collection.state("training-job-41").repaired_by
    page.get_by_text(f"reproducible as {successor}").first.wait_for()


def test_two_users_never_see_each_other(open_page: OpenPage, site: Site, watch: Watch) -> None:
    watch.expected.append("404")
    page = open_page(site, "/", user="rita")
    page.get_by_test_id("card").first.wait_for()
    assert page.get_by_test_id("card").count() == 1
    assert "secret" in page.get_by_test_id("card").inner_text()
    for path in ("", "/browse?sample=1", "/versions", "/compare?from=v1", "/integrity", "/runs"):
        page.goto(f"{site.url}/d/acme/street{path}")
        page.get_by_text("there is no dataset 'acme/street'").wait_for()
    assert page.evaluate("document.images.length") == 0
