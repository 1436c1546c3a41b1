"""If this fails, the first thing a new user runs does not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import publish, run, trips


def check(path: Path) -> str:
    """Run the loader as it is, and hold it to ruff's own defaults."""
    for rule in (["check", "--isolated"], ["format", "--isolated", "--check"]):
        command = [sys.executable, "-m", "ruff", *rule, path.name]
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=path.parent)
    done = subprocess.run([sys.executable, str(path)], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


def test_the_loader_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    publish("acme/my-trips", trips(count=25))
    result = run("init", "acme/my-trips")
    assert result.stdout == "acme_my_trips_loader.py\n"
    assert "try it" in result.stderr
    said = check(tmp_path / "acme_my_trips_loader.py")
    assert said.splitlines() == [
        "batch 0: 10 rows, 3 columns",
        "batch 1: 10 rows, 3 columns",
        "batch 2: 5 rows, 3 columns",
        "smoke test passed",
    ]


def test_the_loader_reads_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish("acme/trips", trips(count=25))
    run("init", "acme/trips", "-o", str(tmp_path / "loader.py"))
    space: dict[str, object] = {}
    exec((tmp_path / "loader.py").read_text(), space)  # noqa: S102 - it is our own text
    stream = space["train_stream"]
    assert callable(stream)
    seen = [n for rank in range(3) for batch in stream(4, shard=(rank, 3)) for n in batch["id"].to_pylist()]
    assert sorted(seen) == list(range(25))


def test_a_store_a_ref_and_a_table_are_written_down(tmp_path: Path) -> None:
    store = tmp_path / "my store"
    builder = wd.DatasetBuilder("acme/two", store=str(store)).add_table("a", trips()).add_table("b", trips(count=3))
    builder.publish(label="v1")
    path = tmp_path / "loader.py"
    result = run("init", "acme/two@v1", "--table", "b", "--store", str(store), "--output", str(path))
    assert result.exit_code == 0, result.stderr
    assert 'ADDRESS = "acme/two@v1"' in path.read_text()
    assert check(path).startswith("batch 0: 3 rows")


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    publish()
    path = tmp_path / "loader.py"
    path.write_text("mine")
    refused = run("init", "acme/trips", "--output", str(path))
    assert refused.exit_code == 4
    assert "--force" in refused.stderr
    assert path.read_text() == "mine"
    assert run("init", "acme/trips", "--output", str(path), "--force").exit_code == 0
    assert "smoke test passed" in check(path)
    assert run("init", "acme/trips", "--output", "-").stdout == path.read_text()
    assert run("init", "acme/trips", "--output", str(tmp_path / "no" / "such" / "folder.py")).exit_code == 5


def test_names_cannot_become_code(tmp_path: Path) -> None:
    names = ["plain", 'quote " and """ and \\', "line\nbreak", "brace {x}", "é" * 200]
    publish("acme/odd", pa.table({name: [1] for name in names}))
    path = tmp_path / "loader.py"
    run("init", "acme/odd", "--output", str(path))
    assert "1 rows, 5 columns" in check(path)


def test_ten_thousand_columns_are_not_all_listed(tmp_path: Path) -> None:
    publish("acme/wide", pa.table({f"c{n}": [1] for n in range(2000)}))
    text = run("init", "acme/wide", "--output", "-").stdout
    assert "… and 1960 more" in text
