"""If this fails, a package imports one above or beside it, or reaches past the face of a package.

docs/ARCHITECTURE.md defines the order. Imports are read from the syntax tree, so no code runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "warpdata"

FOUNDATION = {"errors", "limits", "settings", "primitives"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "primitives": {"errors", "limits"},
    "settings": {"errors", "limits", "primitives"},
    "storage": FOUNDATION,
    "storage.cache": FOUNDATION | {"storage"},
    "repository.manifest": FOUNDATION,
    "repository.rows": FOUNDATION | {"repository.manifest"},
    "repository.catalog": FOUNDATION | {"storage", "repository.manifest"},
    "repository.gc": FOUNDATION | {"storage", "repository.manifest", "repository.catalog"},
    "session": FOUNDATION | {"storage", "storage.cache", "repository.catalog", "repository.gc"},
    "formats.media": {"errors", "limits", "primitives"},
    "formats.wshard": {"errors", "limits", "primitives", "storage", "formats.media"},
    "formats.convert": {"errors", "limits", "primitives", "formats.media", "formats.wshard"},
    "formats.huggingface": {"errors"},
    "formats.labels": {"errors", "limits", "primitives", "repository.manifest", "formats.media"},
    "formats.tensors": FOUNDATION | {"storage"},
    "query": FOUNDATION | {"storage"},
    "formats.parquet": FOUNDATION | {"storage", "repository.manifest", "repository.rows", "query"},
    "formats.indexes": FOUNDATION | {"storage", "repository.manifest", "query", "formats.parquet"},
    "formats.search": FOUNDATION | {"storage", "repository.manifest", "query", "formats.parquet", "formats.indexes"},
    "jobs": FOUNDATION
    | {"session", "storage", "storage.cache", "repository.manifest", "repository.catalog", "repository.gc"},
    "kinds": FOUNDATION | {"session", "repository.manifest", "repository.catalog", "jobs"},
    "kinds.tables": FOUNDATION
    | {"storage", "repository.manifest", "repository.rows", "formats.parquet", "formats.search", "query", "kinds"},
    "kinds.artifacts": FOUNDATION
    | {
        "session",
        "jobs",
        "storage",
        "storage.cache",
        "repository.manifest",
        "repository.catalog",
        "formats.media",
        "kinds",
    },
    "kinds.tensors": FOUNDATION
    | {"storage", "storage.cache", "repository.manifest", "formats.tensors", "session", "kinds"},
    "kinds.indexes": FOUNDATION
    | {"session", "storage", "repository.manifest", "repository.rows", "query", "formats.parquet", "formats.indexes"}
    | {"kinds", "kinds.tables"},
    "streaming": FOUNDATION | {"storage", "storage.cache", "repository.manifest", "query", "formats.media"},
    "kinds.episodes": FOUNDATION
    | {"session", "storage", "repository.manifest", "repository.rows", "formats.media", "formats.parquet"}
    | {"formats.wshard", "formats.search", "query", "kinds", "kinds.tables", "streaming"},
    "publish": FOUNDATION
    | {
        "jobs",
        "formats.parquet",
        "session",
        "storage",
        "storage.cache",
        "repository.manifest",
        "repository.catalog",
        "repository.gc",
    }
    | {"kinds", "kinds.tables", "kinds.artifacts", "kinds.tensors", "kinds.episodes"},
    "edit": FOUNDATION
    | {"jobs", "session", "storage", "storage.cache", "repository.manifest", "repository.catalog", "repository.rows"}
    | {"query", "formats.parquet", "kinds", "kinds.tables", "publish"},
    "indexing": FOUNDATION
    | {"jobs", "session", "storage", "repository.manifest", "repository.catalog", "query", "formats.parquet"}
    | {"formats.indexes", "formats.search", "kinds", "kinds.tables", "kinds.indexes", "publish", "edit"},
    "search": FOUNDATION
    | {"storage", "repository.manifest", "repository.rows", "formats.media", "formats.parquet", "formats.indexes"}
    | {"formats.search", "kinds", "kinds.tables", "kinds.indexes"},
    "datasets": FOUNDATION
    | {"jobs", "session", "storage", "storage.cache"}
    | {"repository.manifest", "repository.rows", "repository.catalog", "repository.gc"}
    | {"streaming", "formats.media", "formats.parquet", "formats.tensors", "query", "edit", "indexing", "search"}
    | {"kinds", "kinds.tables", "kinds.artifacts", "kinds.tensors", "kinds.episodes", "kinds.indexes"},
    "samples": FOUNDATION
    | {"session", "storage.cache", "repository.manifest", "repository.catalog"}
    | {"kinds", "kinds.artifacts", "publish", "edit", "datasets"},
    "trajectories": FOUNDATION | {"storage", "formats.wshard", "query", "datasets", "publish"},
    "maintenance": FOUNDATION
    | {"jobs", "session", "storage", "storage.cache", "repository.manifest", "repository.catalog", "repository.gc"}
    | {"kinds", "publish", "datasets"},
    "collections": FOUNDATION
    | {"jobs", "session", "storage", "storage.cache", "repository.manifest", "repository.catalog", "repository.gc"}
    | {
        "formats.labels",
        "formats.media",
        "kinds.tables",
        "kinds.artifacts",
        "publish",
        "edit",
        "datasets",
        "exporters",
    },
    "ingest": FOUNDATION
    | {"session", "storage", "repository.manifest", "formats.parquet", "formats.media", "formats.huggingface"}
    | {"kinds.tables", "kinds.artifacts", "publish"},
    "loaders": FOUNDATION | {"session", "streaming", "kinds.tables", "kinds.artifacts", "datasets"},
    "simulation": FOUNDATION
    | {"repository.manifest", "formats.parquet", "streaming", "kinds.tables", "kinds.artifacts", "datasets"},
    "connection": FOUNDATION | {"session", "repository.catalog", "datasets", "collections"},
    "exporters": FOUNDATION
    | {"jobs", "session", "repository.manifest", "formats.parquet", "formats.media", "formats.huggingface", "query"}
    | {"kinds.tables", "kinds.artifacts", "datasets"},
    "server": FOUNDATION
    | {"session", "storage", "repository.manifest", "repository.rows", "repository.catalog", "repository.gc", "query"}
    | {"formats.media", "formats.labels", "kinds", "kinds.tables", "kinds.artifacts"}
    | {"formats.tensors", "kinds.episodes", "kinds.tensors"}
    | {"publish", "edit", "datasets", "maintenance", "collections", "ingest", "exporters", "search"},
    "testing": FOUNDATION | {"storage"},
    "wshard": {"formats.wshard"},
    "tensors": {"formats.tensors"},
    "conversion": {"formats.convert"},
}
"""Units that each unit may import, besides itself. The command line may import everything."""

DEFERRED: dict[str, set[str]] = {
    "datasets": {"kinds.tensors", "kinds.episodes", "streaming", "edit", "indexing", "search"},
    "kinds.tables": {"formats.search"},
}
"""Units that others import inside functions, because they load NumPy: opening a dataset stays fast."""

POWERS: dict[str, tuple[str, ...]] = {
    "obstore": ("storage/",),
    "duckdb": ("query/", "cli/"),
    "click": ("cli/",),
    "rich": ("cli/",),
    "socket": (
        "testing/",
        "formats/tensors/peer_server.py",
        "formats/tensors/peer_connection.py",
        "server/safe_http.py",
        "server/supervisor.py",
    ),
    "sklearn": ("cli/",),
    "PIL": ("formats/media/image.py", "cli/episode_plot.py"),
    "soundfile": ("formats/media/audio.py",),
    "av": ("formats/media/",),
    "h5py": ("formats/convert/",),
    "gymnasium": ("formats/convert/",),
    "mcap": ("formats/convert/",),
    "simplejpeg": ("formats/media/jpeg.py",),
    "torch": (
        "streaming/torch.py",
        "loaders/",
        "formats/tensors/cuda/torch_interop.py",
        "formats/media/jpeg.py",
        "formats/media/nvjpeg.py",
    ),
    "torchvision": ("formats/media/jpeg.py", "formats/media/nvjpeg.py"),
    "lance": ("ingest/lance.py",),
    "lightning": ("loaders/",),
    "ray": ("datasets/ray_source.py", "publish/ray_sink.py"),
    "torchdata": ("loaders/",),
    "datasets": ("exporters/huggingface.py",),
    "alembic": ("server/database/",),
    "jwt": ("server/access/provider.py",),
    "fastapi": ("server/",),
    "prometheus_client": ("server/",),
    "pydantic": ("server/",),
    "sqlalchemy": ("server/",),
    "starlette": ("server/",),
    "uvicorn": ("server/",),
    "sqlite3": ("collections/reverse_index.py",),
    "pickle": ("primitives/worker_pickle.py",),
}
"""Third-party or system modules, with the only paths that may import them."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def unit(name: str) -> str:
    """Return the unit of a dotted module path: the longest one known, or its first part."""
    known = [key for key in ALLOWED if name == key or name.startswith(f"{key}.")]
    return max(known, key=len, default=name.split(".")[0])


def unit_of(path: Path) -> str:
    return unit(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip("."))


def imports(path: Path) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Yield every import: the node, the module, and whether it is inside a function."""
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
def test_imports_go_down_and_through_package_faces(path: Path) -> None:
    here = unit_of(path)
    for node, name, in_function in imports(path):
        if name.split(".")[0] != "warpdata" or here in ("", "cli"):
            continue
        there = unit(name.removeprefix("warpdata").lstrip("."))
        where = f"{path.relative_to(SOURCE)}:{node.lineno}"
        if there == here:
            continue
        assert there in ALLOWED[here], f"{where}: {here} may not import {there or 'the public face'}"
        is_face = name == f"warpdata.{there}" or there == "primitives"
        assert is_face, f"{where}: import from warpdata.{there}, the face of the package"
        is_deferred = there in DEFERRED.get(here, ())
        assert not in_function or is_deferred, f"{where}: an import of our own package inside a function hides a cycle"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_each_power_has_one_home(path: Path) -> None:
    relative = path.relative_to(SOURCE).as_posix()
    for node, name, _ in imports(path):
        homes = POWERS.get(name.split(".")[0])
        if homes is not None and not _for_types_only(path, node):
            assert relative.startswith(homes), f"{relative}:{node.lineno} imports {name}"


def test_media_libraries_are_required_in_one_package() -> None:
    """Optional libraries are imported by `require`, which the imports above do not show."""
    for path in modules():
        relative = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require"):
                continue
            if isinstance(node.args[0], ast.Constant):
                package = str(node.args[0].value).partition(".")[0]
                is_home = relative.startswith(("formats/media/", "cli/"))
                assert package not in ("PIL", "av", "soundfile") or is_home, f"{relative}:{node.lineno}"


def test_connections_are_made_in_one_module() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if "duckdb.connect(" in text:
            assert path.relative_to(SOURCE).as_posix() == "query/duckdb.py"


def test_arrow_types_are_not_converted_through_pandas() -> None:
    """Supported versions of Arrow refuse `to_pandas_dtype` if pandas is not installed."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr == "to_pandas_dtype"), f"{path}:{node.lineno}"


def test_cached_properties_are_those_of_primitives() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        is_home = path.relative_to(SOURCE).as_posix() == "primitives/cached_property.py"
        assert is_home or not re.search(r"functools(\.| import .*)cached_property", text), (
            f"{path}: use warpdata.primitives.cached_property"
        )


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
        if unit_of(path) == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "exit", "eval", "exec", "input"), f"{path}:{node.lineno}"


def test_clock_and_chance_are_arguments() -> None:
    """The session owns the clock and the unseeded generator. Names of temporary files and tokens are random too."""
    owners = {"session.py", "storage/local.py", "primitives/atomic_file.py", "primitives/worker_pool.py"}
    owners |= {"storage/cache/staging.py", "datasets/ref_columns.py"}
    owners |= {"formats/tensors/source_health.py"}  # back-off of sources, below the session
    owners |= {"primitives/adaptive_limit.py", "primitives/concurrency.py"}  # throughput and quotas of the process
    owners |= {"storage/service_client.py"}  # how long a connection was idle
    owners |= {"primitives/backoff.py"}  # pauses between requests, with jitter
    for path in modules():
        relative = path.relative_to(SOURCE).as_posix()
        if relative in owners or unit_of(path) in ("cli", "testing"):
            continue
        for _, name, _ in imports(path):
            assert name not in ("time", "random", "uuid", "secrets"), f"{relative} imports {name}"


def test_public_names_exist() -> None:
    import warpdata

    assert sorted(set(warpdata.__all__)) == warpdata.__all__
    for name in warpdata.__all__:
        assert getattr(warpdata, name) is not None


def test_type_checkers_see_the_public_names() -> None:
    """The imports under TYPE_CHECKING repeat the export table of the package."""
    import warpdata

    typed = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("warpdata")
        for alias in node.names
        if alias.asname == alias.name  # only this form is exported
    }
    assert typed == {(home, name) for home, names in warpdata._EXPORTS.items() for name in names}


def _for_types_only(path: Path, wanted: ast.stmt) -> bool:
    """Return True if the import is under `if TYPE_CHECKING:`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and any(child.lineno == wanted.lineno for child in node.body)
        for node in ast.walk(tree)
    )
