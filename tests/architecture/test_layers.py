"""If this fails, the house has grown a hidden staircase: a layer reaches up, sideways or around a front door.

The order comes from docs/ARCHITECTURE.md. It is read from the syntax tree, so nothing needs to run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "warpdata"

FOUNDATION = {"errors", "limits", "settings", "sizes", "digest", "strict_json", "progress", "machine", "lazy"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "digest": {"limits", "errors"},
    "strict_json": {"limits", "errors"},
    "settings": {"errors", "limits"},
    "progress": set(),
    "sizes": {"errors"},
    "machine": set(),
    "lazy": set(),
    "store": FOUNDATION,
    "cache": FOUNDATION | {"store"},
    "manifest": FOUNDATION,
    "wshard": {"errors", "limits", "digest", "strict_json", "lazy"},
    "catalog": FOUNDATION | {"store", "manifest"},
    "tables": FOUNDATION | {"store", "manifest"},
    "artifacts": FOUNDATION | {"store", "manifest"},
    "streaming": FOUNDATION | {"manifest", "tables", "artifacts"},
    "tensors": {"errors", "limits", "digest", "strict_json", "machine", "lazy"},
    "episodes": FOUNDATION | {"store", "manifest", "tables", "wshard", "streaming"},
    "conversion": FOUNDATION | {"wshard"},
    "datasets": FOUNDATION
    | {"store", "cache", "manifest", "catalog", "tables", "artifacts", "streaming", "tensors", "episodes"},
    "publish": FOUNDATION
    | {"store", "cache", "manifest", "catalog", "tables", "artifacts", "wshard", "tensors", "episodes", "datasets"},
    "ingest": FOUNDATION | {"store", "manifest", "catalog", "tables", "artifacts", "datasets", "publish"},
    "testing": FOUNDATION | {"store", "cache", "manifest", "catalog", "tables", "artifacts", "datasets", "publish"},
    "cli": FOUNDATION
    | {"store", "cache", "manifest", "catalog", "tables", "artifacts", "wshard", "tensors", "episodes", "conversion"}
    | {"streaming", "datasets", "publish", "ingest", "cli", ""},
}
"""What each room may import, beside itself. Payload kinds (tables) are handed manifest entries and do not
know the catalog; `""` is the public face, `import warpdata`."""

POWERS: dict[str, tuple[str, ...]] = {
    "obstore": ("store/",),
    "duckdb": ("tables/", "cli/"),
    "click": ("cli/",),
    "rich": ("cli/",),
    "socket": ("testing/",),
    "sklearn": ("cli/",),
    "PIL": ("artifacts/decode.py", "cli/drawing.py", "wshard/films.py"),
    "soundfile": ("artifacts/decode.py",),
    "av": ("artifacts/decode.py", "wshard/films.py"),
    "h5py": ("conversion/",),
    "gymnasium": ("conversion/",),
    "mcap": ("conversion/",),
    "torch": ("streaming/torch.py", "tensors/devices.py"),
    "fastapi": (),
    "pickle": (),
}
"""Each power has its home: third-party or system modules, and the only folders that may import them."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py") if relative.parts[0] != "__init__.py" else ""


def imports(path: Path) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Every import: the node, the module named, and whether it stands inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name, id(node) in inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            yield node, node.module or "", id(node) in inside


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_and_through_the_front_door(path: Path) -> None:
    here = room(path)
    if here == "":
        return
    for node, name, in_function in imports(path):
        if name.split(".")[0] != "warpdata":
            continue
        parts = name.split(".")[1:]
        there = parts[0] if parts else ""
        where = f"{path.relative_to(SOURCE)}:{node.lineno}"
        if there == here:
            continue
        assert there in ALLOWED[here], f"{where}: {here}/ may not know {there or 'the public face'}"
        assert len(parts) <= 1, f"{where}: import from warpdata.{there}, its front door"
        assert not in_function or here == "cli", f"{where}: an import of ourselves inside a function hides a cycle"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_each_power_has_one_home(path: Path) -> None:
    relative = path.relative_to(SOURCE).as_posix()
    for node, name, _ in imports(path):
        homes = POWERS.get(name.split(".")[0])
        if homes is not None and not _for_types_only(path, node):
            assert relative.startswith(homes), f"{relative}:{node.lineno} imports {name}"


def test_connections_are_made_in_one_module() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if "duckdb.connect(" in text:
            assert path.relative_to(SOURCE).as_posix() == "tables/engine.py"


def test_nobody_asks_arrow_for_types_of_pandas() -> None:
    """Versions of Arrow that we support refuse to tell where pandas is not installed."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr == "to_pandas_dtype"), f"{path}:{node.lineno}"


def test_values_are_computed_once_without_a_lock_for_all() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        is_home = path.relative_to(SOURCE).as_posix() == "lazy.py"
        assert is_home or not re.search(r"functools(\.| import .*)cached_property", text), f"{path}: use warpdata.lazy"


def test_environment_is_read_in_settings_only() -> None:
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv"):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                relative = path.relative_to(SOURCE).as_posix()
                assert owner != "os" or relative in ("settings.py", "testing/s3_server.py"), f"{relative}:{node.lineno}"


def test_only_the_command_line_prints_or_exits() -> None:
    for path in modules():
        if room(path) == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "exit", "eval", "exec", "input"), f"{path}:{node.lineno}"


def test_clock_and_chance_are_arguments() -> None:
    """Only the composition root owns a clock or an unseeded generator.

    The local store draws names for its temporary files, which nobody ever sees.
    """
    owners = {"datasets/connection.py", "store/local.py"}
    for path in modules():
        relative = path.relative_to(SOURCE).as_posix()
        if relative in owners or room(path) in ("cli", "testing"):
            continue
        for _, name, _ in imports(path):
            assert name not in ("time", "random", "uuid", "secrets"), f"{relative} imports {name}"


def test_the_public_face_names_real_things() -> None:
    import warpdata

    assert sorted(warpdata.__all__, key=_sort_key) == warpdata.__all__
    for name in warpdata.__all__:
        assert getattr(warpdata, name) is not None


def _sort_key(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _for_types_only(path: Path, wanted: ast.stmt) -> bool:
    """Whether the import stands under `if TYPE_CHECKING:`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and any(child.lineno == wanted.lineno for child in node.body)
        for node in ast.walk(tree)
    )
