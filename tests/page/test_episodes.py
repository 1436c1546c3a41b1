"""If this fails, the player shows other values or frames than were recorded, or reads more than it shows."""

from __future__ import annotations

import base64
import io
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image

import warpdata as wd
from tests.page.conftest import OpenPage, Site, Watch
from warpdata.kinds.episodes import Episodes

ROBOTS = "/d/acme/robots/episodes"
_CANVAS = "one => one.querySelector('canvas').toDataURL('image/png')"


def episodes_of(site: Site, dataset_id: str = "acme/robots") -> Episodes:
    return wd.connect(site.store).dataset(dataset_id).episodes()


def query_of(page: Any) -> dict[str, str]:
    return {name: held[0] for name, held in parse_qs(urlsplit(page.url).query).items()}


def values_at(page: Any, block: str, kind: str = "value") -> list[float]:
    found = page.get_by_test_id(f"plot-{block}").get_by_test_id(kind)
    found.first.wait_for()
    return [float(one.get_attribute("data-value")) for one in found.all()]


def wait_for_step(page: Any, step: int) -> None:
    page.wait_for_selector(f"[data-testid=player][data-step='{step}']")


def test_the_list_equals_python_and_its_order_survives_reload(open_page: OpenPage, site: Site) -> None:
    stored = episodes_of(site)
    rewards = {one.id: float(np.asarray(one.read(["reward"])["reward"], np.float64).sum()) for one in stored}
    page = open_page(site, ROBOTS)
    page.get_by_role("button", name="Reward").click()
    page.wait_for_url("**sort=reward**")
    for _ in range(2):
        page.wait_for_selector("[data-id=ep_011]")
        shown = page.evaluate(
            "() => [...document.querySelectorAll('[data-id]')].map(one => [one.dataset.id,"
            " one.querySelector('[data-testid=reward]').dataset.value,"
            " one.querySelector('[data-testid=length]').dataset.value])"
        )
        assert [one[0] for one in shown] == sorted(rewards, key=lambda one: -rewards[one])
        for name, reward, length in shown:
            assert (float(reward), int(length)) == (rewards[name], stored[name].length)
        assert int(page.get_by_test_id("total").get_attribute("data-value")) == len(stored)
        page.reload()
    page.wait_for_selector("[data-id=ep_011]")
    page.keyboard.press("/")
    page.keyboard.type("metadata.success AND reward > 12")
    page.keyboard.press("Enter")
    wanted = [name for name in rewards if stored[name].metadata["success"] and rewards[name] > 12]
    page.wait_for_selector(f"[data-testid=total][data-value='{len(wanted)}']")
    page.get_by_test_id("episodes").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-testid=player]")
    by_reward = sorted(wanted, key=lambda one: -rewards[one])
    assert query_of(page)["episode"] == by_reward[1]
    page.keyboard.press("]")
    page.wait_for_url(f"**episode={by_reward[2]}**")
    page.go_back()
    page.wait_for_url(f"**episode={by_reward[1]}**")


def test_values_predictions_and_uncertainty_are_those_of_the_step(open_page: OpenPage, site: Site) -> None:
    episode = episodes_of(site)["ep_004"]
    page = open_page(site, f"{ROBOTS}?episode=ep_004&frame=30")
    wait_for_step(page, 30)
    for step in (30, 31, 41, 40):
        wait_for_step(page, step)
        assert values_at(page, "action/ctrl") == episode["ctrl"].window(step, step + 1)[0].tolist()
        assert values_at(page, "signal/joint") == episode["joint"].window(step, step + 1)[0].tolist()
        predicted = episode["omen/ctrl/policy"].window(step, step + 1)[0].tolist()
        assert values_at(page, "action/ctrl", "predicted") == predicted
        spread = episode["uncert/ctrl/policy/std"].window(step, step + 1)[0].tolist()
        assert values_at(page, "action/ctrl", "spread") == spread
        page.keyboard.press({30: "ArrowRight", 31: "Shift+ArrowRight", 41: "ArrowLeft", 40: "Home"}[step])
    wait_for_step(page, 0)
    page.wait_for_url(lambda url: "frame" not in url)
    page.keyboard.press("End")
    wait_for_step(page, episode.length - 1)
    page.wait_for_url(f"**frame={episode.length - 1}**")
    page.reload()
    wait_for_step(page, episode.length - 1)


@pytest.mark.parametrize("camera", ["wrist", "depth"])
def test_cameras_show_the_frame_of_the_step(open_page: OpenPage, site: Site, camera: str) -> None:
    episode = episodes_of(site)["ep_003"]
    page = open_page(site, f"{ROBOTS}?episode=ep_003&frame=12")
    for step in (12, 13, 23):
        shown = page.get_by_test_id(f"camera-{camera}")
        page.wait_for_selector(f"[data-testid=camera-{camera}][data-step='{step}']")
        assert np.array_equal(pixels(shown), episode[camera].window(step, step + 1)[0])
        page.keyboard.press("ArrowRight" if step == 12 else "Shift+ArrowRight")


def pixels(shown: Any) -> Any:
    data = base64.b64decode(shown.evaluate(_CANVAS).partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("name", ["h264", "av1"])
def test_a_video_shows_the_frame_of_the_step(open_page: OpenPage, forms: Site, name: str) -> None:
    """Decoders round colours in their own way, so pixels are compared closely, and with the other frames."""
    frames = episodes_of(forms, "acme/forms")[name]["cam"].read().astype(float)
    page = open_page(forms, f"/d/acme/forms/episodes?episode={name}&frame=13")
    for step in (13, 12, 39, 0):
        page.wait_for_selector(f"[data-testid=camera-cam][data-step='{step}']")
        distances = np.abs(frames - pixels(page.get_by_test_id("camera-cam"))).mean((1, 2, 3))
        assert distances.argmin() == step
        assert distances[step] < 8
        page.keyboard.press({13: "ArrowLeft", 12: "End", 39: "Home", 0: "Home"}[step])


def test_files_that_follow_each_other_are_one_episode(open_page: OpenPage, forms: Site) -> None:
    stored = episodes_of(forms, "acme/forms")["chunked"]
    page = open_page(forms, "/d/acme/forms/episodes?episode=chunked&frame=14")
    for step in (14, 15, 25):
        page.wait_for_selector(f"[data-testid=camera-cam][data-step='{step}']")
        shown = pixels(page.get_by_test_id("camera-cam")).astype(float)
        assert np.abs(shown - stored["cam"].window(step, step + 1)[0]).mean() < 8
        assert values_at(page, "signal/state") == stored["state"].window(step, step + 1)[0].tolist()
        page.keyboard.press("ArrowRight" if step == 14 else "Shift+ArrowRight")


@pytest.mark.parametrize("name", ["timed", "packed"])
def test_compressed_channels_of_any_rate_are_aligned_by_time(open_page: OpenPage, forms: Site, name: str) -> None:
    stored = episodes_of(forms, "acme/forms")[name]
    times = stored["time/timestamps_ns"].read()
    page = open_page(forms, f"/d/acme/forms/episodes?episode={name}&frame=20")
    wait_for_step(page, 20)
    assert values_at(page, "signal/joint") == stored["joint"].window(20, 21)[0].tolist()
    row = int((times[20] - times[0]) * 200 // 1_000_000_000)
    assert values_at(page, "signal/fast") == [float(row)]


def test_playing_moves_the_step_and_space_stops_it(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, f"{ROBOTS}?episode=ep_010")
    wait_for_step(page, 0)
    page.keyboard.press("Space")
    page.wait_for_function("() => Number(document.querySelector('[data-testid=player]').dataset.step) > 15")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play", exact=True).wait_for()
    step = int(page.get_by_test_id("player").get_attribute("data-step"))
    page.wait_for_url(f"**frame={step}**")
    page.wait_for_selector(f"[data-testid=camera-wrist][data-step='{step}']")
    assert np.array_equal(
        pixels(page.get_by_test_id("camera-wrist")), episodes_of(site)["ep_010"]["wrist"].window(step, step + 1)[0]
    )


def test_a_drag_over_one_plot_moves_the_cursor_of_all(open_page: OpenPage, site: Site) -> None:
    episode = episodes_of(site)["ep_002"]
    page = open_page(site, f"{ROBOTS}?episode=ep_002")
    wait_for_step(page, 0)
    box = page.get_by_test_id("plot-action/ctrl").locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=3)
    page.mouse.up()
    step = int(page.get_by_test_id("player").get_attribute("data-step"))
    assert abs(step - 0.5 * (episode.length - 1)) <= 1
    assert values_at(page, "signal/joint") == episode["joint"].window(step, step + 1)[0].tolist()
    places = page.evaluate("() => [...document.querySelectorAll('.cursor')].map(one => one.style.left)")
    assert len(places) == 3
    assert len(set(places)) == 1


def test_a_choice_of_channels_is_in_the_address(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, f"{ROBOTS}?episode=ep_001")
    page.get_by_test_id("camera-depth").wait_for()
    page.get_by_role("group", name="Channels").get_by_role("button", name="depth").click()
    page.get_by_test_id("camera-depth").wait_for(state="detached")
    second = open_page(site, urlsplit(page.url).path + "?" + urlsplit(page.url).query)
    second.get_by_test_id("camera-wrist").wait_for()
    assert second.get_by_test_id("camera-depth").count() == 0
    assert second.get_by_test_id("plot-action/ctrl").count() == 1


def test_a_long_episode_is_read_by_windows(open_page: OpenPage, long_episode: Site) -> None:
    """Two million steps of 40 bytes: the page reads the window, and what it costs does not grow with the episode."""
    stored = episodes_of(long_episode, "acme/long")["drive"]
    assert stored.size_bytes > 70_000_000
    page = open_page(long_episode, "/d/acme/long/episodes?episode=drive&frame=1234567")
    sizes: list[int] = []
    page.on("response", lambda one: sizes.append(int(one.headers.get("content-length", 0))))
    wait_for_step(page, 1_234_567)
    assert values_at(page, "signal/joint") == stored["joint"].window(1_234_567, 1_234_568)[0].tolist()[:8]
    page.get_by_test_id("scrub").fill("3000")
    wait_for_step(page, 3000)
    page.wait_for_function(
        "() => Number(document.querySelector('[data-testid=value]')?.dataset.value)"
        f" === {stored['joint'].window(3000, 3001)[0][0].item()}"
    )
    assert sum(sizes) < 2_000_000


def test_a_dataset_without_episodes_or_tensors_says_so(open_page: OpenPage, site: Site) -> None:
    page = open_page(site, "/d/acme/trips")
    page.get_by_role("link", name="Browse").wait_for()
    assert page.get_by_role("link", name="Episodes").count() == 0
    page.goto(site.url + "/d/acme/trips/episodes")
    page.get_by_text("This version has no episodes").wait_for()
    page.goto(site.url + "/d/acme/trips/tensors")
    page.get_by_text("This version has no tensors").wait_for()


def test_two_users_never_see_each_other(open_page: OpenPage, site: Site, watch: Watch) -> None:
    watch.expected.append("404")
    page = open_page(site, f"{ROBOTS}?episode=ep_001", user="rita")
    page.get_by_text("there is no dataset 'acme/robots'").wait_for()
    for path in ("episode?id=ep_001", "episode/file?id=ep_001", "episodes", "tensors/tree", "tensors/diff?from=step-1"):
        answer = page.request.get(f"{site.url}/api/v1/datasets/acme/robots/{path}")
        assert answer.status == 404
