"""If this fails, the first command of the README does not do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.cli.scenes import PROGRAM, run, run_program
from warpdata.cli.context import python_command, warp_command
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
    for text in ("first batch after", "samples/s", "keeps", "64 PNG files of 1,797"):
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


def test_next_steps_run_as_printed(tmp_path: Path) -> None:
    """A shell without `warp` on its path runs every line, in the directory of the demo."""
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    shown = subprocess.run([*PROGRAM, "demo"], timeout=60, check=True, **options).stdout
    steps, _, last = shown.split("Next steps:\n")[1].partition("\n\n")
    lines = [line.strip() for line in steps.splitlines()]
    assert len(lines) >= 5
    assert last.rstrip().endswith("serve --no-sign-in")
    for line in lines:
        done = subprocess.run(["/bin/bash", "-c", line], timeout=60, check=False, **options)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout or ">" in line
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")


def test_command_is_short_only_if_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "my env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "warp"):
        (programs / name).write_text("")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    assert (warp_command(), python_command()) == ("'my env/bin/warp'", "'my env/bin/python'")
    monkeypatch.chdir("/usr")
    assert warp_command() == f"'{programs}/warp'"
    monkeypatch.setenv("PATH", str(programs))
    assert (warp_command(), python_command()) == ("warp", "python")
    (programs / "warp").unlink()
    assert warp_command() == "python -m warpdata.cli"


def test_demo_takes_store() -> None:
    result = run("demo", "--store", "memory://demo")
    assert result.exit_code == 0, result.stderr
    assert " info demo/digits --store memory://demo" in result.stdout
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
