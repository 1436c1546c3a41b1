"""If these fail, a user who misspells a name, lacks a library or quotes a glob gets no useful answer."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from warpdata.errors import MissingExtraError
from warpdata.primitives.extras import require
from warpdata.primitives.paths import expand_glob, find_files, is_glob
from warpdata.primitives.suggest import suggest


@pytest.mark.parametrize(
    ("name", "known", "label", "expected"),
    [
        ("trips", ["trip", "tips", "cars"], None, "Did you mean trip or tips?"),
        ("trips", ["trip"], "Tables", "Did you mean trip?"),
        ("xyz", ["b", "a"], "Tables", "Tables: b, a"),
        ("xyz", [], "Tables", "Tables: none"),
        ("xyz", ["b", "a"], None, None),
        ("xyz", [str(n) for n in range(13)], "T", "T: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …"),
    ],
)
def test_suggest(name: str, known: list[str], label: str | None, expected: str | None) -> None:
    assert suggest(name, known, label=label) == expected


def test_require_imports_submodules() -> None:
    assert require("json", purpose="this") is json
    assert require("xml.dom", purpose="this").__name__ == "xml.dom"


def test_require_waits_for_an_import_of_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing hashes blocks in threads. A module that is still being executed has no functions yet."""
    (tmp_path / "slow_library.py").write_text("import time\ntime.sleep(0.3)\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: require("slow_library", purpose="this").ready, range(4)))
    assert found == [True] * 4


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"extra": "image"}, "pip install 'warpdata-lake[image]'"),
        ({"install": "thing==1.0"}, "pip install thing==1.0"),
        ({}, "pip install no_such_library"),
    ],
)
def test_require_names_what_is_missing(options: dict[str, str], hint: str) -> None:
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_library.part", purpose="decoding 'a.png'", **options)
    assert caught.value.message == "decoding 'a.png' needs no_such_library, which is not installed"
    assert caught.value.hint == hint


@pytest.mark.parametrize("body", ["import no_such_dependency", "raise OSError('libx.so is missing')"])
def test_require_does_not_call_a_broken_library_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    (tmp_path / "broken_library.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="broken_library, which cannot be imported: "):
        require("broken_library", purpose="this")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.CSV", "sub/c.csv", "d.txt", "odd[1].csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "directory.csv").mkdir()
    return tmp_path


def relative(tree: Path, found: list[Path]) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in found]


def test_find_files(tree: Path) -> None:
    assert relative(tree, find_files(tree, [".csv"])) == ["b.csv", "odd[1].csv", "sub/c.csv"]
    assert relative(tree, find_files(tree, [".csv"], ignore_case=True))[0] == "a.CSV"
    assert relative(tree, find_files(tree, [".csv", ".txt"])) == ["b.csv", "d.txt", "odd[1].csv", "sub/c.csv"]
    assert relative(tree, find_files(f"{tree}/*.csv", [])) == ["b.csv", "odd[1].csv"]
    assert relative(tree, find_files(f"{tree}/**/*.csv", [])) == ["b.csv", "odd[1].csv", "sub/c.csv"]
    assert find_files(f"{tree}/*.none", []) == []
    assert find_files(tree / "absent.csv", []) == [tree / "absent.csv"]
    assert find_files(tree / "odd[1].csv", []) == [tree / "odd[1].csv"]


def test_a_path_that_exists_is_no_glob(tree: Path) -> None:
    assert is_glob(tree / "*.csv")
    assert is_glob(tree / "odd[2].csv")
    assert not is_glob(tree / "odd[1].csv")
    assert not is_glob(tree / "absent.csv")
    assert relative(tree, expand_glob(tree / "d*")) == ["d.txt", "directory.csv"]


def test_a_tilde_is_the_home_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    assert find_files("~/b*.csv", []) == [tree / "b.csv"]
    assert not is_glob("~/odd[1].csv")


def test_the_package_loads_no_third_party_library() -> None:
    script = (
        "import pkgutil, sys, warpdata.primitives as package; before = set(sys.modules); "
        "[__import__(f'{package.__name__}.{one.name}') for one in pkgutil.iter_modules(package.__path__)]; "
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(names - set(sys.stdlib_module_names) - {'warpdata'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
