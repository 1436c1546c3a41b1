"""If this fails, a search in a terminal shows other rows than the library finds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, run
from warpdata.cli import image_grid


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
        (["--near", "x", "--column", "emb", "--model", "clip"], "is not FILE.py:NAME"),
        (["--near", "x", "--column", "emb", "--model", "nope.py:f"], "no file nope.py"),
        (["--near", "x", "--column", "emb", "--model", f"{__file__}:nope"], "defines no 'nope'"),
        (["--column", "emb"], "something to look for"),
    ],
)
def test_wrong_queries_are_explained(arguments: list[str], message: str) -> None:
    done = run("search", "acme/pets", *arguments)
    assert done.exit_code == 5
    assert message in done.stderr


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Publish three pictures and a file that is none, and return an example: a small copy of the second."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "photos").mkdir()
    random = np.random.default_rng(1)
    for number in range(3):
        pixels = random.integers(0, 255, (8, 12, 3)).repeat(16, 0).repeat(16, 1).astype("u1")
        image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.jpg", quality=90)
        if number == 1:
            image.fromarray(pixels).resize((60, 40)).save(tmp_path / "query.png")
    (tmp_path / "photos" / "3.jpg").write_bytes(b"no image")
    emb = pa.array([[1, 0], [0.8, 0.6], [0, 1], [1, 1], None], pa.list_(pa.float32(), 2))
    rows = pa.table({"image": ["0.jpg", "1.jpg", "2.jpg", "3.jpg", None], "emb": emb})
    builder = wd.DatasetBuilder("acme/photos").add_table("main", rows).add_artifact("photos", tmp_path / "photos")
    builder.bind("main", "image", "photos", "image").publish()
    return tmp_path / "query.png"


def test_rows_like_an_example_image(photos: Path) -> None:
    arguments = ["search", "acme/photos", "--near", str(photos), "--column", "image", "--k", "2"]
    found = ask(*arguments)
    assert found["hits"][0]["image"] == "1.jpg"
    assert found["hits"][0]["_score"] > 0.9 > found["hits"][1]["_score"]
    part = found["explanation"]["parts"][0]
    assert (part["kind"], part["compared"], part["skipped"]) == ("appearance", 3, 2)
    assert "1.jpg" in run(*arguments, "--grid").stdout  # not a terminal: paths
    dataset = wd.dataset("acme/photos")
    image = pytest.importorskip("PIL.Image")
    reference = dataset.table()[1]["image"]
    for example in (photos, str(photos), photos.read_bytes(), image.open(photos), reference):
        hits = dataset.search(near=("image", example), k=2, filter="image <> '0.jpg'")
        assert [row["image"].path for row in hits] == ["1.jpg", "2.jpg"]
    assert dataset.search(near=("image", reference), k=1).scores == [1.0]
    assert len(dataset.search(near=("image", photos), k=0)) == 0
    with pytest.raises(wd.errors.BadInputError, match="metric='l2' does not compare"):
        dataset.search(near=("image", photos), metric="l2")
    with pytest.raises(wd.errors.BadInputError, match="an example is a path"):
        dataset.search(near=("image", [1, 2]))
    with pytest.raises(wd.errors.MediaDecodeError):
        dataset.search(near=("image", b"no image"))


def test_a_model_computes_the_vector_of_an_example(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "def encode(given):\n"
        "    return [[0.0, 1.0] if isinstance(each, str) else each.as_pil().size for each in given]\n"
    )
    model = ["--column", "emb", "--model", f"{tmp_path / 'model.py'}:encode", "--k", "1"]
    assert ask("search", "acme/photos", "--near", str(photos), *model)["hits"][0]["image"] == "1.jpg"  # 60 × 40
    assert ask("search", "acme/photos", "--near", "a text", *model)["hits"][0]["image"] == "2.jpg"


def test_thumbnails_on_a_terminal(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    shown = io.StringIO()

    def terminal() -> Console:
        return Console(file=shown, force_terminal=True, color_system="truecolor", width=60, markup=False)

    def show(renderable: Any) -> None:
        terminal().print(renderable)

    monkeypatch.setattr(image_grid, "console", terminal)
    monkeypatch.setattr(image_grid, "show", show)
    done = run("search", "acme/photos", "--near", str(photos), "--column", "image", "--filter", "emb IS NOT NULL")
    assert done.exit_code == 0
    drawn = shown.getvalue()
    lines = drawn.splitlines()
    assert lines[0].count("▀") == 2 * 26  # two in a row, on a terminal of 60 characters
    assert max(line.count("▀") for line in lines) == 2 * 26
    assert drawn.count("\x1b[38;2;") > 500  # colours of pixels
    assert drawn.index("1.jpg") < drawn.index("2.jpg")
    assert "0.jpg" in drawn
