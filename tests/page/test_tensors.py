"""If this fails, the page shows other tensors, numbers or differences than the checkpoint has."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

import warpdata as wd
from tests.page.conftest import OpenPage, Site
from warpdata.tensors import TensorSet, describe_tensor

ROBOTS = "/d/acme/robots/tensors"


def tensors_of(site: Site, ref: str = "main") -> TensorSet:
    return wd.connect(site.store).dataset(f"acme/robots@{ref}").tensors()


def number_of(page: Any, test_id: str) -> float:
    shown = page.get_by_test_id(test_id)
    shown.wait_for()
    return float(shown.get_attribute("data-value"))


def test_counts_in_the_header_are_those_of_the_index(open_page: OpenPage, site: Site) -> None:
    art = tensors_of(site)
    page = open_page(site, ROBOTS)
    assert number_of(page, "tensors") == len(art)
    assert number_of(page, "elements") == sum(one.element_count for one in art.index)
    assert number_of(page, "bytes") == sum(one.byte_size for one in art.index)


def test_keys_alone_open_a_branch_and_a_tensor(open_page: OpenPage, site: Site) -> None:
    art = tensors_of(site)
    page = open_page(site, ROBOTS)
    page.wait_for_selector("[data-path=layers]")
    page.get_by_test_id("tree").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector("[data-path='layers.11']")
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector("[data-path='layers.0.norm']")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**tensor=layers.0.norm**")
    assert page.get_by_test_id("shape").inner_text() == "24"
    second = open_page(site, urlsplit(page.url).path + "?" + urlsplit(page.url).query)
    second.wait_for_selector("[data-path='layers.0.norm'][aria-selected=true]")
    assert number_of(second, "fact-mean") == describe_tensor(art, "layers.0.norm").mean
    second.get_by_test_id("search").fill("MLP")
    second.wait_for_selector("[data-testid=found]")
    wanted = [name for name in art.names() if "mlp" in name]
    second.wait_for_selector(f"[data-path='{wanted[0]}']")
    shown = second.evaluate("() => [...document.querySelectorAll('[data-path]')].map(one => one.dataset.path)")
    assert shown == wanted


@pytest.mark.parametrize("name", ["embed.weight", "head.weight", "steps"])
def test_statistics_and_histogram_are_those_of_python(open_page: OpenPage, site: Site, name: str) -> None:
    wanted = describe_tensor(tensors_of(site), name)
    page = open_page(site, f"{ROBOTS}?tensor={name}")
    for title, value in (("minimum", wanted.minimum), ("maximum", wanted.maximum), ("mean", wanted.mean)):
        assert number_of(page, f"fact-{title}") == value
    assert (number_of(page, "fact-NaN"), number_of(page, "fact-zero")) == (wanted.nan_count, wanted.zero_count)
    counts = page.evaluate("() => [...document.querySelectorAll('[data-count]')].map(one => Number(one.dataset.count))")
    assert counts == list(wanted.counts)


def test_a_large_tensor_is_a_sample_and_says_so(open_page: OpenPage, forms: Site) -> None:
    art = wd.connect(forms.store).dataset("acme/forms").tensors()
    wanted = describe_tensor(art, "big")
    assert 0 < wanted.read_bytes <= 64 << 20 < art.index["big"].byte_size
    page = open_page(forms, "/d/acme/forms")
    page.get_by_role("link", name="weights").click()
    page.locator("[data-path=big]").click()
    note = page.get_by_test_id("sampled")
    note.wait_for()
    assert f"{wanted.read_count:,} of 20,000,000 elements" in note.inner_text()
    assert number_of(page, "fact-mean") == wanted.mean


def test_a_comparison_is_that_of_python(open_page: OpenPage, site: Site) -> None:
    store = wd.connect(site.store)
    wanted = store.dataset("acme/robots@step-2").diff_tensors(store.dataset("acme/robots@step-1"))
    page = open_page(site, f"{ROBOTS}?view=compare&from=step-1")
    for kind, count in wanted.counts.items():
        if count:
            assert number_of(page, f"kind-{kind}") == count
    page.get_by_test_id("decide").click()
    page.wait_for_url("**read=1**")
    decided = wanted.decide()
    page.wait_for_selector(f"[data-testid=kind-same][data-value='{decided.counts['same']}']")
    shown = page.evaluate(
        "() => [...document.querySelectorAll('[data-testid=change]')]"
        ".map(one => [one.dataset.name, one.dataset.change])"
    )
    assert shown == [[one.name, one.kind] for one in decided.changes if one.kind != "same"]
    page.locator("[data-name='head.weight']").get_by_role("button", name="How far").click()
    measured = wanted.difference("head.weight")
    assert number_of(page, "far-largest |Δ|") == measured.max_absolute
    assert number_of(page, "far-norm of Δ") == measured.norm
    assert number_of(page, "far-changed") == measured.changed_count
    page.reload()
    assert number_of(page, "far-mean |Δ|") == measured.mean_absolute
