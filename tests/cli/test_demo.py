"""If this fails, the first command of the README does not do what it says."""

from __future__ import annotations

import re
import sys

import pytest

import warpdata as wd
from tests.cli.scenes import run, run_program
from warpdata.cli.demo_data import digits_table, draw_images


def accuracy(text: str) -> float:
    found = re.search(r"accuracy +([\d.]+)%", text)
    assert found, text
    return float(found[1])


def test_second_run_reuses_version() -> None:
    first = run_program("demo")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert accuracy(first.stdout) > 90
    assert "1,797 images" in first.stdout
    for text in ("first batch after", "samples/s", "keeps", "64 PNG files of 1,797", "warp head demo/digits"):
        assert text in first.stdout
    version = wd.dataset("demo/digits").version
    three = wd.dataset("demo/digits").table().filter("file = '3/0003.png'").to_arrow()
    pixels = three["file"][0].as_numpy().reshape(-1)
    assert [min(255, 16 * shade) for shade in three["image"][0].as_py()] == pixels.tolist()
    second = run_program("demo")
    assert second.returncode == 0
    assert f"version {version[:12]} exists" in second.stdout
    assert accuracy(second.stdout) == accuracy(first.stdout)
    assert len(wd.dataset("demo/digits").history()) == 1


def test_demo_takes_store() -> None:
    result = run("demo", "--store", "memory://demo")
    assert result.exit_code == 0, result.stderr
    assert "warp info demo/digits --store memory://demo" in result.stdout
    assert wd.list_datasets() == []


def test_digits_have_stable_split() -> None:
    table = digits_table()
    assert table.num_rows == 1797
    assert str(table.schema.field("image").type) == "fixed_size_list<item: uint8>[64]"
    assert table["caption"][3].as_py() == "a handwritten three"
    splits = table["split"].to_pylist()
    assert [row for row, split in enumerate(splits) if split == "test"][:5] == [6, 12, 29, 31, 37]
    assert splits.count("test") == 347


def test_drawing_has_four_lines() -> None:
    lines = draw_images(digits_table()["image"][:3].to_pylist())
    assert len(lines) == 4
    assert set("".join(lines)) <= set(" ▄▀█")


def test_missing_scikit_learn_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    result = run("demo")
    assert result.exit_code == 9
    assert "pip install 'warpdata-lake[demo]'" in result.stderr
