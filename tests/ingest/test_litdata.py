"""If this fails, LitData chunks are read with wrong values, or damaged and pickled ones are believed.

`tests/golden/litdata` was written by litdata 0.2.76: plain chunks, and chunks in compressed frames.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.ingest.scenes import bound, rows
from warpdata.errors import UnsupportedError, WarpError
from warpdata.ingest import IngestReport, litdata
from warpdata.ingest.litdata_chunk import decode_nested

GOLDEN = Path(__file__).parents[1] / "golden" / "litdata"


def expected(i: int) -> dict[str, Any]:
    return {
        "n": i, "s": f"text {i}", "x": i / 2, "ok": bool(i % 2), "raw": bytes([i]), "v": [i, i + 1, i + 2],
        "m": [[float(i)] * 2] * 2, "jpg": f"{i:08d}.jpg", "pil": f"{i:08d}.png", "t": [i, i + 1],
        "tt": [[float(i)] * 2] * 2, "nest.a": i, "nest.b": "[1.0,2.0]",
        "nest.c": f'[{{"k":"v","z":null,"i":{i},"f":0.5,"o":true}}]',
        "nest.d.e": '["x","y"]', "nest.d.g": "[true]", "nest.d.h": "[1,2]",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["plain", "zstd", "whole"])
def test_chunks_of_the_library_are_read(name: str, tmp_path: Path) -> None:
    source = GOLDEN / name
    if name == "whole":  # older releases compress a chunk as a whole
        source = shutil.copytree(GOLDEN / "plain", tmp_path / "whole")
        index = json.loads((source / "index.json").read_text())
        index["config"]["compression"] = "zstd"
        (source / "index.json").write_text(json.dumps(index))
        for chunk in source.glob("*.bin"):
            chunk.write_bytes(pa.Codec("zstd").compress(chunk.read_bytes(), asbytes=True))
    found: list[IngestReport] = []
    litdata("acme/web", source, report=found.append).publish()
    assert rows("acme/web") == [expected(i) for i in range(3)]
    assert bound("acme/web") == {name: (f"raw_{name}", "image") for name in ("jpg", "pil")}
    table = wd.dataset("acme/web").table().to_arrow()
    assert [ref.as_numpy().tolist() for ref in table["pil"].to_pylist()] == [[[i, i]] * 2 for i in range(3)]
    assert {outcome.field.partition(".")[0] for outcome in found[0].fields.changed} == {"nest", "pil"}


def test_pickled_and_encrypted_chunks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="which is pickled"):
        litdata("acme/web", GOLDEN / "pickled")
    for field, value, match in (
        ("encryption", {"algorithm": "fernet"}, "are encrypted"),
        ("item_loader", "TokensLoader", "chunks of TokensLoader are not read"),
        ("data_format", ["int"], "other formats"),
        ("data_spec", "[1, {}", "damaged"),
    ):
        folder = shutil.copytree(GOLDEN / "plain", tmp_path / field)
        index = json.loads((folder / "index.json").read_text())
        index["config"][field] = value
        (folder / "index.json").write_text(json.dumps(index))
        with pytest.raises(WarpError, match=match):
            litdata("acme/web", folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data(), name=st.sampled_from(["plain", "zstd"]))
def test_damage_is_a_typed_error(tmp_path: Path, data: st.DataObject, name: str) -> None:
    """LitData has no checksums: a damaged chunk reads, or a typed error names it."""
    folder = tmp_path / "bad"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(GOLDEN / name, folder)
    path = folder / "chunk-0-0.bin"
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    message = ""
    try:
        litdata("acme/web", folder)
    except WarpError as error:
        message = str(error)
    assert not message or "chunk-0-0.bin" in message, message


def test_unknown_type_of_an_array_names_the_chunk(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "plain", tmp_path / "bad")
    path = tmp_path / "bad" / "chunk-0-0.bin"
    content, found = path.read_bytes(), []
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 2]) + content[at + 1 :])
        try:
            litdata("acme/web", tmp_path / "bad")
        except WarpError as error:
            found.append(str(error))
    assert any("type number" in message for message in found)
    assert [message for message in found if "chunk-0-0.bin" not in message] == []


@given(st.binary(max_size=60))
def test_any_bytes_are_a_nested_value_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError, struct.error):
        decode_nested(memoryview(data))


def test_counts_are_compared_with_the_bytes_before_memory_is_allocated() -> None:
    for data in (b"\1\xff\xff\xff\xff", b"\2\xff\xff\xff\xff", b"\6\xff\xff\xff\xff\0\0\0\0", b"\5\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="are not in the bytes"):
            decode_nested(memoryview(data))
    with pytest.raises(ValueError, match="nested deeper"):
        decode_nested(memoryview(b"\5\1\0\0\0\0\0\0\0" * 100 + b"\x0b"))
