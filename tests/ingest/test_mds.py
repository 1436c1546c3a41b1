"""If this fails, MDS shards are read with wrong values, or damaged and pickled ones are believed.

`tests/golden/mds` was written by mosaicml-streaming 0.13.0, the same samples with each compression. The library needs
older releases of NumPy than this project, so it cannot run beside these tests.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.ingest.scenes import bound, rows
from warpdata.errors import InvalidSourceError, UnsupportedError, WarpError
from warpdata.ingest import IngestReport, mds

GOLDEN = Path(__file__).parents[1] / "golden" / "mds"


def expected(i: int) -> dict[str, Any]:
    return {
        "n": i, "u": i, "f": i / 2, "h": float(i), "s": f"text {i}", "raw": bytes([i]),
        "j": json.dumps({"k": [i, None]}),
        "a": [i, i + 1, i + 2], "b": [[i] * (i + 1)] * 2, "c": [[float(i)] * 2] * 2, "d": "1.50", "i": str(10**25 + i),
        "jpg": f"{i:08d}.jpg", "png": f"{i:08d}.png", "pil": f"{i:08d}.png",
    }  # fmt: skip


@pytest.mark.parametrize("compression", ["plain", "zstd", "gz", "br", "bz2", "snappy"])
def test_shards_of_the_library_are_read(compression: str) -> None:
    found: list[IngestReport] = []
    mds("acme/web", GOLDEN / compression, report=found.append).publish()
    listed = rows("acme/web")
    assert [{key: value for key, value in row.items() if key != "lst"} for row in listed] == [
        expected(i) for i in range(3)
    ]
    assert bound("acme/web") == {name: (f"raw_{name}", "image") for name in ("jpg", "png", "pil")}
    table = wd.dataset("acme/web").table().to_arrow()
    for i, row in enumerate(table.to_pylist()):
        assert [row[name].as_numpy().tolist() for name in ("png", "pil")] == [[[i, i]] * 2] * 2
        assert [len(row["lst"]), row["lst"][0]] == [2, row["png"].read_bytes()]
    assert {outcome.field for outcome in found[0].fields.changed} == {"d", "i", "j", "lst", "pil"}
    assert not found[0].fields.lost


def test_pickled_columns_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="column 'n' has encoding 'pkl', which is pickled"):
        mds("acme/web", GOLDEN / "pickled")


def test_directories_are_splits_and_bytes_become_media_on_request(tmp_path: Path) -> None:
    for name in ("val", "train"):
        shutil.copytree(GOLDEN / "plain", tmp_path / name)
    mds("acme/web", tmp_path, media={"raw": "file"}).publish()
    listed = rows("acme/web")
    assert [row["split"] for row in listed] == ["train"] * 3 + ["val"] * 3
    assert listed[0]["raw"] == "train/00000000"
    assert wd.dataset("acme/web").artifact("raw_raw").read("val/00000002") == b"\x02"


def _edit(folder: Path, change: Callable[[Any], object]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def _set(*keys: Any) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        *path, last, value = keys
        for key in path:
            index = index[key]
        index[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_set("shards", []), "lists no shards"),
        (_set("shards", 0, "format", "csv"), "format 'csv'"),
        (_set("shards", 0, "raw_data", "basename", "../x"), r"names '\.\./x', which is not a file"),
        (_set("shards", 0, "raw_data", "bytes", 7), "and the index says 7"),
        (_set("shards", 0, "raw_data", "bytes", 2**40), "are more than"),
        (_set("shards", 0, "samples", 2**31), "another number of samples"),
        (_set("shards", 0, "column_encodings", 0, "wav"), "shard 1 has other columns or encodings"),
        (_set("shards", 1, "column_names", 0, "other"), "shard 1 has other columns"),
        (_set("shards", 0, "column_names", []), "0 columns, 16 encodings"),
        (_set("shards", 0, "raw_data", "hashes", "sha1", "0" * 40), "differs from its sha1"),
        (_set("shards", 7), "lists no shards"),
        (_set("shards", 0, 7), "shard 0 is damaged"),
    ],
)
def test_indexes_that_cannot_be_are_refused(tmp_path: Path, change: Callable[[Any], None], match: str) -> None:
    folder = shutil.copytree(GOLDEN / "plain", tmp_path / "bad")
    _edit(folder, change)
    with pytest.raises(WarpError, match=match):
        mds("acme/web", folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_damage_is_an_error_that_names_the_shard(tmp_path: Path, data: st.DataObject) -> None:
    """Without hashes, any byte may differ: a shard reads, or a typed error names it."""
    folder = tmp_path / "bad"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(GOLDEN / "plain", folder)
    has_hashes = data.draw(st.booleans())
    path = folder / "shard.00000.mds"
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    if not has_hashes:
        _edit(folder, lambda index: [shard["raw_data"].update(hashes={}) for shard in index["shards"]])
    message = ""
    try:
        mds("acme/web", folder)
    except WarpError as error:
        message = str(error)
    assert "shard.00000.mds" in message if has_hashes else not message or "shard.00000.mds" in message, message


def _write(folder: Path, names: list[str], encodings: list[str], samples: list[list[bytes]]) -> None:
    """Write a shard as the format describes it: every column has a size before the values."""
    packed = [b"".join(struct.pack("<I", len(cell)) for cell in cells) + b"".join(cells) for cells in samples]
    config = b"{}"
    first = 4 * (len(samples) + 2) + len(config)
    offsets = [first + sum(map(len, packed[:number])) for number in range(len(packed) + 1)]
    content = struct.pack(f"<{len(samples) + 2}I", len(samples), *offsets) + config + b"".join(packed)
    folder.mkdir(parents=True)
    (folder / "shard.00000.mds").write_bytes(content)
    shard = {
        "format": "mds", "column_names": names, "column_encodings": encodings, "column_sizes": [None] * len(names),
        "compression": None, "samples": len(samples), "zip_data": None,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(content), "hashes": {}},
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))


def test_arrays_of_another_type_than_the_first_are_refused(tmp_path: Path) -> None:
    def array(number: int, content: bytes) -> bytes:
        return bytes([number, 1 << 2, 1]) + content

    _write(tmp_path / "a", ["x"], ["ndarray"], [[array(8, b"\7")], [array(33, b"\7\0\0\0")]])
    with pytest.raises(InvalidSourceError, match=r"sample 1, column 'x'.*int32"):
        mds("acme/web", tmp_path / "a")
    _write(tmp_path / "b", ["x"], ["ndarray"], [[array(8, b"\7\7")]])
    with pytest.raises(InvalidSourceError, match="column 'x'"):
        mds("acme/web", tmp_path / "b")
    _write(tmp_path / "d", ["x"], ["wav"], [[b""]])
    with pytest.raises(UnsupportedError, match="column 'x' has encoding 'wav', which is not known"):
        mds("acme/web", tmp_path / "d")
    _write(tmp_path / "c", ["t"], ["str"], [[b"\xff"]])
    with pytest.raises(InvalidSourceError, match="sample 0, column 't' is damaged"):
        mds("acme/web", tmp_path / "c")
