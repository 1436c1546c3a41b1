"""If this fails, an install line of this project installs another project, or too little, or nothing.

`warpdata` on the package index is not this project. Its name here is that of pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions, requires, version
from pathlib import Path

import pytest

import warpdata
from tests.docs.pages import pages
from tests.packaging.oldest import PROJECT, ROOT, render_constraints
from warpdata.errors import MissingExtraError
from warpdata.primitives.extras import DISTRIBUTION, require

EXTRAS = PROJECT["optional-dependencies"]
FILES = [
    *pages(),
    *sorted(ROOT.glob("examples/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.py")),
    *sorted(ROOT.glob("src/**/*.py")),
    ROOT / "pyproject.toml",
    ROOT / "Makefile",
]
TAKEN = re.compile(r"(?<![\w./-])warpdata\[|pip install (-\S+ )*'?warpdata(?![\w-])")
INSTALLED = re.compile(r"pip install [^`\n]*?'([^'\[]+)\[([^\]']+)\]'")


def test_hints_name_the_distribution_of_the_metadata() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_library", purpose="a test", extra="image")
    assert caught.value.hint == f"pip install '{PROJECT['name']}[image]'"


def test_installed_distribution_has_that_name() -> None:
    installed = packages_distributions().get("warpdata", [])
    if DISTRIBUTION not in installed:
        pytest.skip("the tests run from a source tree that is not installed")
    assert version(DISTRIBUTION) == warpdata.__version__
    assert requires(DISTRIBUTION)


def test_version_is_that_of_the_metadata() -> None:
    assert PROJECT["version"] == warpdata.__version__


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_install_line_names_the_other_project(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not TAKEN.search(text), TAKEN.search(text)
    for found in INSTALLED.finditer(text):
        if "{" not in found[0]:
            assert found[1] in (".", PROJECT["name"]), found[0]
            assert set(found[2].split(",")) <= {*EXTRAS, "…"}, found[0]


def test_extras_of_hints_exist() -> None:
    """Every `extra=` in the source is an extra of pyproject.toml."""
    named = set()
    for path in ROOT.glob("src/**/*.py"):
        named |= set(re.findall(r"extra=\"(\w+)\"", path.read_text(encoding="utf-8")))
    assert named
    assert named <= set(EXTRAS)


def test_oldest_constraints_are_the_lower_bounds() -> None:
    assert (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8") == render_constraints(), (
        "run `python -m tests.packaging.oldest > constraints-oldest.txt`"
    )


def test_constraints_satisfy_the_lower_bounds() -> None:
    """`make test` must not test versions that pyproject.toml excludes."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, _, pin in (line.partition("==") for line in lines)}
    for line in render_constraints().splitlines():
        if not line.startswith("#"):
            name, _, bound = line.partition("==")
            assert _numbers(pins[re.sub(r"[-_.]+", "-", name).lower()]) >= _numbers(bound), name


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def test_demo_needs_few_libraries() -> None:
    """`make demo` must not download torch and the tools of developers. Its last line opens the page of the service."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("$(DEMO_STAMP):")[1].split("\n\n")[0]
    assert "'.[demo]'" in recipe
    assert EXTRAS["demo"] == ["warpdata-lake[server]", "scikit-learn>=1.5"]
    assert not [each for each in EXTRAS["server"] if re.match(r"torch|pandas|datasets|pytest|mypy", each)]
    parsed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(parsed["project"]["dependencies"]) <= 12
