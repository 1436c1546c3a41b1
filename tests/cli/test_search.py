"""If this fails, a search in a terminal shows other rows than the library finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, run


@pytest.fixture(autouse=True)
def pets() -> None:
    vectors = pa.array([[1, 0], [0.8, 0.6], [0, 1]], pa.list_(pa.float32(), 2))
    rows = pa.table({"name": ["Tom", "Kit", "Rex"], "note": ["a red cat", "a cat", "a dog"], "emb": vectors})
    wd.DatasetBuilder("acme/pets").add_table("main", rows).publish()


def test_rows_near_to_a_vector(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.array([0.1, 1.0]))
    found = ask("search", "acme/pets", "--near", str(tmp_path / "q.npy"), "--column", "emb", "--k", "2")
    assert [hit["name"] for hit in found["hits"]] == ["Rex", "Kit"]
    assert found["hits"][0].keys() == {"name", "note", "_score", "_id"}
    assert found["explanation"]["parts"][0]["compared"] == 3
    text = run("search", "acme/pets", "--near", "[1, 0]", "--column", "emb", "--columns", "name", "--explain").stdout
    assert text.index("Tom") < text.index("Kit") < text.index("Rex")


def test_rows_with_words() -> None:
    found = ask("search", "acme/pets", "--text", "red cat", "--column", "note", "--filter", "name != 'Rex'")
    assert [hit["name"] for hit in found["hits"]] == ["Tom", "Kit"]
    both = ["--near", "[0, 1]", "--column", "emb", "--text", "red", "--text-column", "note", "--k", "2"]
    assert [hit["name"] for hit in ask("search", "acme/pets", *both)["hits"]] == ["Tom", "Rex"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--near", "[1, 0]"], "needs a column"),
        (["--near", "[1, 0", "--column", "emb"], "not a JSON list"),
        (["--near", "query.npy", "--column", "emb"], "cannot be read"),
        (["--near", __file__, "--column", "emb"], "not a vector in a .npy file"),
        (["--column", "emb"], "something to look for"),
    ],
)
def test_wrong_queries_are_explained(arguments: list[str], message: str) -> None:
    done = run("search", "acme/pets", *arguments)
    assert done.exit_code == 5
    assert message in done.stderr
