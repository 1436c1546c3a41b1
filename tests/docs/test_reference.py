"""If this fails, the reference describes another library than the one that is installed."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warpdata
from tests.docs.pages import ROOT, blocks, sections
from warpdata import errors

SOURCE = ROOT / "src" / "warpdata"
PYTHON = ROOT / "docs" / "reference" / "python.md"
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
ANSWERS = {
    "warpdata.repository.catalog": ("VersionLabel",),
    "warpdata.storage": ("IOStats",),
    "warpdata.datasets": ("Session", "DatasetInfo", "Revision", "Warmed"),
    "warpdata.kinds.artifacts": ("ArtifactInfo",),
    "warpdata.kinds.episodes": ("EpisodesInfo",),
    "warpdata.kinds.tables": ("TableInfo", "QueryPlan"),
    "warpdata.kinds.indexes": ("IndexInfo",),
    "warpdata.indexing": ("IndexStatus",),
    "warpdata.kinds.tensors": ("TensorsInfo",),
    "warpdata.repository.manifest": ("VersionDiff", "EntryChange", "Manifest"),
    "warpdata.repository.gc": ("Garbage", "GarbageReport"),
    "warpdata.search": ("SearchExplanation", "SearchPart"),
    "warpdata.publish": ("PlannedFile", "ProgressEvent", "PublishPlan", "Published"),
    "warpdata.maintenance": ("Verification",),
    "warpdata.collections": (
        "StoredFile",
        "UploadReceipt",
        "CollectionVersion",
        "VersionState",
        "Comparison",
        "CollectionStatistics",
        "ClassStatistics",
        "TrainingJob",
        "Impact",
        "AffectedVersion",
        "ErasureReceipt",
        "IntegrityReport",
        "RepairReport",
    ),
}
"""Results of public functions, by package."""


def signature(name: str, value: Any) -> str:
    """A callable as the reference writes it: annotations as in the source, defaults as people would write them."""
    documented = inspect.signature(value)
    parts = []
    star = False
    for parameter in documented.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        annotation = "" if parameter.annotation is inspect.Parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_spelled(parameter.default)}"
        stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        parts.append(f"{stars}{parameter.name}{annotation}{default}")
    returned = "" if documented.return_annotation is inspect.Signature.empty else f" -> {documented.return_annotation}"
    return f"{name}({', '.join(parts)}){returned}"


def _spelled(default: object) -> str:
    if inspect.isfunction(default):
        return default.__name__
    if dataclasses.is_dataclass(default):
        return f"{type(default).__name__}()"
    return repr(default)


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Return the members of a class, including those of base classes that are not public."""
    parts = [base for base in reversed(cls.__mro__) if base.__module__.startswith("warpdata.")]
    ours = [base for base in parts if base is cls or base.__name__ not in warpdata.__all__]
    for name, value in {name: value for base in ours for name, value in vars(base).items()}.items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield name, value


def documented_signatures() -> set[str]:
    def flat(text: str) -> str:
        text = re.sub(r"\s+", " ", text).strip()
        return text.replace("( ", "(").replace(" )", ")").replace(",)", ")")

    return {flat(block.text) for block in blocks(PYTHON, "python")}


FUNCTIONS = [name for name in warpdata.__all__ if inspect.isfunction(getattr(warpdata, name))]
CLASSES = [name for name in warpdata.__all__ if inspect.isclass(getattr(warpdata, name))]


@pytest.mark.parametrize("name", warpdata.__all__)
def test_every_public_name_has_a_section(name: str) -> None:
    assert f"`{name}`" in sections(PYTHON)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented_as_they_are(name: str) -> None:
    assert signature(name, getattr(warpdata, name)) in documented_signatures()


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "Settings"])
def test_methods_are_documented_as_they_are(name: str) -> None:
    cls = getattr(warpdata, name)
    here, written = sections(PYTHON), documented_signatures()
    for member, value in public_members(cls):
        assert f"`{name}.{member}`" in here or f"`{name}.{member}`" in here[f"`{name}`"], f"{name}.{member}"
        if inspect.isfunction(value):
            assert signature(f"{name}.{member}", value) in written


def test_the_builder_is_made_as_documented() -> None:
    assert signature("DatasetBuilder", warpdata.DatasetBuilder) in documented_signatures()


@pytest.mark.parametrize(("home", "name"), [(home, name) for home, names in ANSWERS.items() for name in names])
def test_every_field_of_an_answer_is_named(home: str, name: str) -> None:
    cls = getattr(importlib.import_module(home), name)
    text = sections(PYTHON)[f"`{name}`"]
    missing = [field.name for field in dataclasses.fields(cls) if field.init and f"`{field.name}`" not in text]
    assert not missing


def test_settings_are_named_in_full() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert not [field.name for field in dataclasses.fields(warpdata.Settings) if f"`{field.name}`" not in text]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_front_door_is_explained(package: str) -> None:
    """By a docstring of its own, or by a line in the reference."""
    module = importlib.import_module(f"warpdata.{package}")
    documented = PYTHON.read_text(encoding="utf-8")
    silent = [
        name
        for name in getattr(module, "__all__", [])
        if not _explains_itself(getattr(module, name)) and f"`{name}`" not in documented
    ]
    assert not silent, f"warpdata.{package}: {silent} have neither a docstring nor a line in {PYTHON.name}"


def _explains_itself(value: Any) -> bool:
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return False
    text = value.__doc__ or ""
    made_by_dataclass = dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}(")
    return bool(text) and not made_by_dataclass


def test_every_environment_variable_is_listed() -> None:
    tree = ast.parse((SOURCE / "settings.py").read_text(encoding="utf-8"))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    variables = {word for word in words if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", word)}
    assert len(variables) > 20
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert not sorted(name for name in variables if f"`{name}`" not in text)


def test_every_listed_variable_is_read() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    ours = set(re.findall(r"`((?:WARP|AWS|SLURM|OMPI|PMI)_[A-Z0-9_]+)`", text))
    source = (SOURCE / "settings.py").read_text(encoding="utf-8")
    assert not sorted(name for name in ours if f'"{name}"' not in source)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name.endswith("Error")])
def test_every_error_is_listed_with_its_kind(name: str) -> None:
    kind = getattr(errors, name).kind
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert re.search(rf"`{name}` *\| `{kind}`", text), f"{name} with kind {kind}"


def test_every_kind_of_error_is_listed() -> None:
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert not [kind.value for kind in errors.ErrorKind if f"`{kind}`" not in text]


def test_exit_codes_are_those_of_the_command_line() -> None:
    failures = importlib.import_module("warpdata.cli.exit_codes")
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert listed == set(failures.EXIT_CODES)


def test_the_sections_that_docstrings_promise_exist() -> None:
    """`Implements "Pages" of docs/specs/manifest.md` must lead somewhere."""
    promised = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        for words, spec in re.findall(
            r'(?:Implements|Checks the) ((?:"[^"]+"(?: and )?)+)[^.]*? ?of (docs/\S+?\.md)', text
        ):
            promised += [(path.name, section, spec) for section in re.findall(r'"([^"]+)"', words)]
        for spec in re.findall(r"docs/(?:specs|reference|guides|decisions)/[\w-]+\.md", text):
            assert Path(ROOT, spec).is_file(), f"{path.name} refers to {spec}"
    assert len(promised) >= 12
    for name, section, spec in promised:
        assert section in sections(Path(ROOT, spec)), f"{name} implements {section!r}, which {spec} does not have"
