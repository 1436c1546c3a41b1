"""If this fails, some page breaks, is closed to people with a keyboard or a screen reader, or talks to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.page.conftest import PHONE, ROOT, OpenPage, Site, Watch

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = {
    "datasets": "/",
    "overview": "/d/acme/street",
    "browse": "/d/acme/street/browse",
    "sample": "/d/acme/street/browse?sample=2",
    "table": "/d/acme/trips/browse",
    "episodes": "/d/acme/robots/episodes?sort=reward&order=desc",
    "episode": "/d/acme/robots/episodes?episode=ep_004&frame=30",
    "tensors": "/d/acme/robots/tensors?open=layers,layers.0&tensor=embed.weight",
    "tensors-compared": "/d/acme/robots/tensors?view=compare&from=step-1&tensor=head.weight",
    "versions": "/d/acme/street/versions",
    "compare": "/d/acme/street/compare?from=v1",
    "compare-tables": "/d/acme/trips/compare?from=v1",
    "labelling": "/d/acme/street/labelling",
    "connections": "/d/acme/street/labelling?part=connections",
    "upload": "/d/acme/street?upload=1",
    "integrity": "/d/acme/street/integrity?purge=north/0010.jpg",
    "runs": "/d/acme/street/runs?run=41",
    "sql": "/sql?q=" + quote('SELECT city, count(*) AS trips FROM "acme/trips" GROUP BY city'),
    "jobs": "/jobs",
    "members": "/admin",
    "tokens": "/admin/tokens",
    "s3-keys": "/admin/s3-keys",
    "webhooks": "/admin/webhooks?workspace=acme",
    "storage": "/admin/storage",
    "garbage": "/admin/garbage",
    "audit": "/admin/audit",
}
_QUIET = "() => !document.querySelector('[aria-busy=\"true\"]')"


def settle(page: Any) -> None:
    """Wait until all questions to the service are answered, except for the stream of events."""
    page.wait_for_selector("h1, [data-testid]")
    page.wait_for_function(_QUIET)
    page.wait_for_function("() => [...document.images].every(one => one.complete || one.loading === 'lazy')")


def test_the_link_that_serve_prints_opens_the_page(chromium: Any, site: Site, watch: Watch) -> None:
    context = chromium.new_context()
    page = watch.over(context, site.url)
    page.goto(site.sign_in_url)
    page.wait_for_selector("[data-testid=card]")
    assert page.url == site.url + "/"
    cookie = context.cookies()[0]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    page.reload()
    page.wait_for_selector("[data-testid=card]")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_selector("h1:has-text('Sign in')")
    watch.expected.append("401")
    context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_works_without_complaint(open_page: OpenPage, site: Site, name: str, scheme: str) -> None:
    page = open_page(site, PAGES[name], color_scheme=scheme)
    settle(page)
    found = accessibility_problems(page)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone(open_page: OpenPage, site: Site, name: str) -> None:
    page = open_page(site, PAGES[name], viewport=PHONE)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def accessibility_problems(page: Any) -> list[str]:
    """Return the serious findings of axe-core, which is evaluated by the debugger, not loaded by the page."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `make web`")
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:4]
    ]


def test_an_address_that_is_no_page_says_so(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/d/acme/street/nonsense")
    page.wait_for_selector("h1:has-text('There is no page')")


def test_keys_alone_lead_from_the_list_to_a_sample(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/")
    settle(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("acme/street")
    page.get_by_role("option", name="acme/street").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/d/acme/street")
    settle(page)
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/browse")
    page.wait_for_selector("[role=option] img")
    page.get_by_test_id("grid").focus()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.wait_for_selector("[data-testid=selection] >> text=1 selected")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-testid=detail]")
    assert "sample=1" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector("[data-testid=detail]", state="detached")
    page.keyboard.press("g")
    page.keyboard.press("v")
    page.wait_for_url("**/versions*")
    page.keyboard.press("?")
    page.wait_for_selector("dialog >> text=Keys")


def test_the_palette_of_colours_is_kept(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/", color_scheme="light")
    page.get_by_role("button", name="Use dark colours").click()
    page.reload()
    page.wait_for_selector("button[aria-label='Use light colours']")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 16, 21)"
