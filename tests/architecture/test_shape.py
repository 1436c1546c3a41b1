"""If this fails, a module or function has outgrown its purpose, or a package face is untidy."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "warpdata"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_POSITIONAL = 6
LONG_MODULES: dict[str, str] = {}
"""Modules allowed to be longer, each with the reason."""
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "base", "manager"}


def ident(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=ident)
def test_module_is_of_a_size_to_read(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_MODULE_LINES or ident(path) in LONG_MODULES


@pytest.mark.parametrize("path", MODULES, ids=ident)
def test_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{ident(path)} has no docstring"
    assert path.stem not in FORBIDDEN_NAMES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{ident(path)}:{node.lineno} {node.name} has {length} lines"
            taken = [arg.arg for arg in node.args.args if arg.arg not in ("self", "cls")]
            assert len(taken) <= MAX_POSITIONAL, f"{ident(path)}:{node.lineno} {node.name} takes {len(taken)} arguments"


@pytest.mark.parametrize("package", PACKAGES, ids=ident)
def test_face_is_sorted_and_true(package: Path) -> None:
    name = "warpdata." + ".".join(package.relative_to(SOURCE).parts)
    module = importlib.import_module(name)
    listed: list[str] = list(getattr(module, "__all__", []))
    assert len(listed) == len(set(listed))
    for public in listed:
        value = getattr(module, public)
        if callable(value) and getattr(value, "__module__", "").startswith("warpdata"):
            assert value.__doc__, f"{name}.{public} is public and has no docstring"
