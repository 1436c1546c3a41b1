"""If this fails, an object that people print shows a memory address, or floods a terminal or a notebook."""

from __future__ import annotations

import dataclasses
import inspect
import io
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata import conversion, wshard
from warpdata.conversion import ConversionReport, FieldOutcome
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.wshard import Block, Channel, Episode

images = pytest.importorskip("PIL.Image", reason="the extra warpdata[image] is not installed")

MOST_CHARS = 700
COLUMNS = 300
FILES = 60
OF_TENSORS = {"SourcePolicy"}
"""Names of `warpdata.tensors`, whose tests check their representations."""
WITHOUT_INSTANCES = {"HeadedSource", "RangeSource", "RowSource", "RecordEpisodes", "DType", "Codec"}
"""Protocols, enumerations, and a wrapper whose representation is Gymnasium's."""


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    images.new("RGB", (width, height), (200, 10, 10)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> wd.Dataset:
    """A version whose names, columns, channels and values are many and hostile."""
    root = tmp_path_factory.mktemp("reprs")
    files = {f"{n:03d}{'<b>' * 20}.png": png(40, 30) for n in range(FILES)}
    rows = pa.table(
        {
            "id": range(FILES),
            "image": list(files),
            "text": ["<script>\x1b[31m" + "x" * 5000] * FILES,
            **{f"column_with_a_long_name_{n}": [n] * FILES for n in range(COLUMNS)},
        }
    )
    builder = wd.DatasetBuilder("a/x", root.as_uri()).add_table("main", rows).add_artifact("raw", files)
    builder.bind("main", "image", "raw", "image").add_episodes("demos", [episode(n) for n in range(8)])
    builder.publish("x" * 100)
    return wd.dataset("a/x", store=root.as_uri())


def episode(number: int) -> Episode:
    data = np.zeros((300, 7), np.float32)
    lanes = {f"joints_{n}": Channel(f"joints_{n}", data) for n in range(20)}
    camera, frames = wshard.index_images([png(4, 4)] * 300, range(300), "camera")
    extra = {"blob": Block(bytes(100_000)), wshard.frames_block("signal/camera"): frames}
    return Episode(id=f"episode-{number}", length=300, observations=lanes | {"camera": camera}, extra=extra)


FIELDS = (
    *(wd.Image(), wd.Audio(), wd.Video(), wd.File(), wd.Text(), wd.Categorical(), wd.Tags(), wd.Timestamp()),
    *(wd.Embedding(4), wd.Integer(), wd.Float(), wd.Boolean()),
)


@pytest.fixture(scope="module")
def objects(dataset: wd.Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    directory = tmp_path_factory.mktemp("files")
    table = dataset.table()
    everything = table.select(table.schema().names).filter(" OR ".join(f"id = {n}" for n in range(200)))
    stream = dataset.stream(batch_size=4, shuffle=True)
    loader = dataset.to_torch(batch_size=4)
    image = table.head(1)["image"][0]
    stored = dataset.episodes()[0]
    wshard.save_wshard(episode(0), directory / "e.wshard")
    file = wshard.open_wshard(directory / "e.wshard")
    chunked = wshard.ChunkedEpisodeWriter(directory / "chunks", "e", chunk_size_t=300)
    entry = chunked.write_chunk(dataclasses.replace(episode(0), id="e", extra={}))
    joined = wshard.JoinedFile([file, file])
    ref = image.as_py()
    builder = wd.DatasetBuilder("a/y", dataset.session)
    for number in range(50):
        builder.add_table(f"table_with_a_long_name_{number}", pa.table({"id": [1]}))
    plan, published = builder.plan(), builder.publish()
    newer = wd.dataset("a/y", store=dataset.session.reader.url)
    frames = wshard.FrameReader(file, "signal/camera")
    loaded = wshard.load_wshard(directory / "e.wshard")
    outcome = FieldOutcome("a", "kept", 1)
    writer = wd.open_writer("a/x", store=dataset.session.reader.url)
    return [
        *(dataset, dataset.session, dataset.manifest, dataset.info(), dataset.context, dataset.version_ref),
        *(dataset.history()[0], dataset.io_stats, dataset.diff(dataset), dataset.session.catalog),
        *(dataset.session.reader, wd.load_settings(), wd.verify(dataset), wd.Shuffle(1, 2)),
        wd.col("id").isin(range(500)) & (wd.col("text") == "x" * 5000),
        *(table, everything, dataset.artifact(), next(dataset.artifact().members()), image, ref),
        *(wd.FileRef(ref.artifact, ref.locator), wd.AudioRef(ref.artifact, ref.locator)),
        wd.VideoRef(ref.artifact, ref.locator),
        *(stream, stream.telemetry, stream.telemetry.stats, stream.explain(), stream.source, stream.context),
        *(stream.options, stream.identity, loader, loader.dataset, loader.telemetry, wd.mix({stream: 1.0})),
        *(builder, plan, published, newer.diff(dataset), frames, frames.index),
        *(dataset.episodes(), dataset.episodes().filter("length > 1"), stored, stored["joints_0"]),
        dataset.episodes().windows(keys={"joints_0": (0, 1)}, batch_size=2),
        *(episode(0), *episode(0).observations.values(), *episode(0).extra.values(), loaded, loaded.origin),
        *(file, file["signal/joints_0"], file["signal/joints_0"].block_type, file.info, joined),
        *(joined["signal/joints_0"], wshard.Timebase(), wshard.ChunkPlace(0, 1, 0), chunked, entry),
        *(chunked.finalize_manifest(), wshard.ChunkManifest("e", "", 500, 500, (entry,) * 500)),
        *(file.info.channels.values() if file.info else ()),
        wshard.WShardStreamWriter(directory / "s.wshard", "e", []),
        wshard.Recovery(directory / "s", "e", 1, True, 0, 0, None),
        *(writer, writer.append(), writer.schema, *writer.schema.fields.values(), *FIELDS),
        *(
            wd.Box("cat", 1, 2, 3, 4),
            wd.Label("cat"),
            wd.Mask("cat", np.eye(500)),
            wd.collection("a/pets", store=dataset.session),
        ),
        wd.Polyline("kerb", [(n, n) for n in range(500)]),
        *(wd.Polygon("cat", [(n, n) for n in range(500)]), wd.Keypoints("cat", [(n, n) for n in range(500)])),
        *(dataset.edit(), wd.MergeConflict("main", 1, ("x",), {"x": 1}, {"x": 2}, None)),
        wd.export("a/x", directory / "exported", dry_run=True, store=dataset.session.reader.url),
        *(outcome, ConversionReport("a", "b", 1, 1, (), (outcome,) * 500, (), (), ())),
    ]


def public_classes() -> set[type]:
    found = set()
    for module in (wd, wshard, conversion):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and name not in OF_TENSORS | WITHOUT_INSTANCES and not issubclass(value, Enum):
                found.add(value)
    return found


def test_every_public_class_is_looked_at(objects: list[Any]) -> None:
    classes = {cls for value in objects for cls in type(value).__mro__}
    assert not {cls.__name__ for cls in public_classes() - classes}


def test_representations_are_short_and_without_addresses(objects: list[Any]) -> None:
    for value in objects:
        text = repr(value)
        assert " at 0x" not in text, text
        assert len(text) <= MOST_CHARS, f"{type(value).__name__}: {len(text)} characters: {text[:300]}"
        assert text.isprintable(), text


def test_notebooks_show_tables(dataset: wd.Dataset) -> None:
    shown = {
        "dataset": dataset._repr_html_(),
        "table": dataset.table()._repr_html_(),
        "filtered": dataset.table().filter("id > 1")._repr_html_(),
        "artifact": dataset.artifact()._repr_html_(),
        "episodes": dataset.episodes()._repr_html_(),
        "file": wd.FileRef(dataset.artifact(), "missing")._repr_html_(),
    }
    for name, html in shown.items():
        assert html.startswith("<div>"), name
        assert len(html) < 30_000, name
        assert "<script>" not in html, name
        assert "<b><b>" not in html, name
        assert "\x1b" not in html, name
    assert "&lt;script&gt;" in shown["table"]
    assert f"{COLUMNS + 3 - 20} more columns" in shown["table"]
    assert "id &gt; 1" in shown["filtered"]
    assert "demos" in shown["dataset"]
    assert "episode-0" in shown["episodes"]


def test_notebooks_show_images_small(dataset: wd.Dataset, tmp_path: Path) -> None:
    scalar = dataset.table().head(1)["image"][0]
    assert 'src="data:image/png;base64,' in scalar._repr_html_()
    files = {"large.png": png(3000, 2000), "broken.png": b"no image"}
    builder = wd.DatasetBuilder("a/z", tmp_path.as_uri()).add_table("main", pa.table({"image": [*files, None]}))
    builder.add_artifact("raw", files).bind("main", "image", "raw", "image").publish()
    large, broken, null = wd.dataset("a/z", store=tmp_path.as_uri()).table().head()["image"]
    assert len(large._repr_html_()) < 20_000
    assert "not an image" in broken._repr_html_()
    assert null._repr_html_() is None


def test_parts_of_a_representation_are_bounded() -> None:
    assert short_repr("X", "a", n=None, kind="k", m=list(range(9))) == "X('a', kind='k', m=[0, 1, 2, 3, … 5 more])"
    assert len(short_repr("X", "y" * 10_000, z=["z" * 10_000] * 100)) < 500
    assert html_table("<", [">"], [["&", 1234]], notes=["\x07"]) == (
        "<div><p><b>&lt;</b></p><table><thead><tr><th>&gt;</th></tr></thead><tbody>"
        "<tr><td>&amp;</td><td>1,234</td></tr></tbody></table><p> </p></div>"
    )
