"""If this fails, a forged dataset of another library invents, repeats or loses samples, hangs, or takes all memory.

Each case is one file that no writer makes. It must end in a typed error that names the file, or in the right rows.
"""

from __future__ import annotations

import bz2
import json
import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.ingest.scenes import rows, write_tar
from tests.ingest.test_mds import _write as write_mds
from tests.ingest.test_warpdata3 import VERSION, Root
from warpdata.errors import InvalidSourceError, UnsupportedError, WarpError
from warpdata.ingest import huggingface, litdata, mds, warpdata3, webdataset
from warpdata.ingest.sample_columns import SampleColumn, sample_batches
from warpdata.ingest.source_files import source_errors
from warpdata.kinds.artifacts import list_tar
from warpdata.limits import MAX_SAMPLE_SUFFIXES

GOLDEN = Path(__file__).parents[1] / "golden"
MIB = 2**20


def edit(folder: Path, change: Callable[[Any], object]) -> Path:
    """Change the index of a directory."""
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def one_column(folder: Path, encoding: str, *cells: bytes) -> Path:
    write_mds(folder, ["x"], [encoding], [[cell] for cell in cells])
    return folder


def compressed(folder: Path, algorithm: str, compress: Callable[[bytes], bytes]) -> Path:
    """Compress the shard of an MDS directory."""
    raw = folder / "shard.00000.mds"
    packed = compress(raw.read_bytes())
    (folder / "packed").write_bytes(packed)
    raw.unlink()
    zipped = {"basename": "packed", "bytes": len(packed), "hashes": {}}
    return edit(folder, lambda index: index["shards"][0].update(compression=algorithm, zip_data=zipped))


def one_leaf(folder: Path, given: str, leaf: bytes) -> Path:
    """Make a LitData chunk with one sample of one leaf."""
    sample = struct.pack("<I", len(leaf)) + leaf
    chunk = struct.pack("<III", 1, 12, 12 + len(sample)) + sample
    folder.mkdir()
    (folder / "chunk.bin").write_bytes(chunk)
    spec = [1, {"type": "builtins.dict", "context": '["x"]', "children_spec": [{"type": None}]}]
    config = {"data_format": [given], "data_spec": json.dumps(spec), "item_loader": "PyTreeLoader"}
    chunks = [{"filename": "chunk.bin", "chunk_size": 1}]
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    return folder


def refused(read: Callable[..., Any], folder: Path, match: str, error: type[WarpError] = InvalidSourceError) -> None:
    with pytest.raises(error, match=match):
        read("acme/x", folder)


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


class TestMds:
    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda shard: shard.update(column_sizes=[-2]), "-2 as a column size"),
            (lambda shard: shard["raw_data"].update(bytes=-2), "-2 as bytes"),
            (lambda shard: shard.update(samples=-1), "-1 as samples"),
            (lambda shard: shard.update(column_encodings=[5]), "5 among the names and encodings"),
            (lambda shard: shard["raw_data"].update(hashes={"sha3_256": "0"}), "differs from its sha3_256"),
        ],
    )
    def test_an_index_with_impossible_values(self, tmp_path: Path, change: Any, match: str) -> None:
        folder = edit(one_column(tmp_path / "x", "bytes", b"abc"), lambda index: change(index["shards"][0]))
        refused(mds, folder, match)

    def test_a_hash_that_cannot_be_verified(self, tmp_path: Path) -> None:
        folder = one_column(tmp_path / "x", "bytes", b"abc")
        edit(folder, lambda index: index["shards"][0]["raw_data"].update(hashes={"crc1": "0"}))
        refused(mds, folder, "hash of the unknown kind 'crc1'", UnsupportedError)

    def test_a_shard_that_is_listed_twice(self, tmp_path: Path) -> None:
        folder = one_column(tmp_path / "x", "bytes", b"abc")
        refused(mds, edit(folder, lambda index: index["shards"].append(index["shards"][0])), r"lists .*mds' twice")

    def test_an_index_with_a_key_twice(self, tmp_path: Path) -> None:
        folder = one_column(tmp_path / "x", "bytes", b"abc")
        index = (folder / "index.json").read_text()
        (folder / "index.json").write_text(f'{{"shards": [], {index[1:]}')
        refused(mds, folder, r"index\.json is damaged.*'shards' appears twice")

    @pytest.mark.parametrize(("position", "value"), [(1, 8), (3, 20)])
    def test_samples_that_are_not_the_rest_of_the_shard(self, tmp_path: Path, position: int, value: int) -> None:
        """The first sample begins inside the table, or the last one ends before the end."""
        folder = one_column(tmp_path / "x", "bytes", b"abc", b"def")
        shard = folder / "shard.00000.mds"
        content = bytearray(shard.read_bytes())
        struct.pack_into("<I", content, 4 * position, value)
        shard.write_bytes(content)
        refused(mds, folder, r"shard\.00000\.mds has samples in bytes")

    def test_arrays_of_countless_empty_lists(self, tmp_path: Path) -> None:
        """A few bytes claim 2⁴⁰ lists without elements."""
        shape = bytes([8, (2 << 2) | 3]) + struct.pack("<QQ", 2**40, 0)
        refused(mds, one_column(tmp_path / "x", "ndarray", shape), r"sample 0, column 'x'.*empty lists")
        folder = one_column(tmp_path / "y", "ndarray", bytes([8, (2 << 2) | 0, 3, 0]))
        mds("acme/x", folder).publish()
        assert rows("acme/x") == [{"x": [[], [], []]}]

    def test_a_negative_dimension(self, tmp_path: Path) -> None:
        refused(mds, one_column(tmp_path / "x", "ndarray:int8:-1", b"abc"), "negative size")

    def test_bz2_of_several_streams(self, tmp_path: Path) -> None:
        folder = one_column(tmp_path / "x", "bytes", b"abc")
        compressed(folder, "bz2", lambda data: bz2.compress(data[:9]) + bz2.compress(data[9:]))
        mds("acme/x", folder).publish()
        assert rows("acme/x") == [{"x": b"abc"}]

    @pytest.mark.parametrize("algorithm", ["bz2", "gz", "zstd", "br"])
    def test_a_compressed_shard_that_ends_early(self, tmp_path: Path, algorithm: str) -> None:
        folder = shutil.copytree(GOLDEN / "mds" / algorithm, tmp_path / "x")
        packed = next(path for path in sorted(folder.iterdir()) if path.name.startswith("shard.00000"))
        packed.write_bytes(packed.read_bytes()[:-9])

        def change(index: Any) -> None:
            index["shards"][0]["zip_data"].update(bytes=packed.stat().st_size, hashes={})

        refused(mds, edit(folder, change), rf"{packed.name} (cannot be decompressed|decompresses)")

    def test_snappy_of_another_size(self, tmp_path: Path) -> None:
        """Arrow returns memory that was never written, up to the size that the index claims."""
        codec = pa.Codec("snappy")
        folder = one_column(tmp_path / "x", "bytes", b"abc")
        compressed(folder, "snappy", lambda data: codec.compress(data, asbytes=True))
        edit(folder, lambda index: index["shards"][0]["raw_data"].update(bytes=2**31))
        refused(mds, folder, "packed cannot be decompressed as snappy: it has 21 bytes")

    def test_offsets_take_no_memory_of_their_own(self, tmp_path: Path) -> None:
        """A shard of 4 MiB of zeros in 200 bytes claims a million samples."""
        folder = one_column(tmp_path / "x", "bytes", b"abc")
        raw = struct.pack("<I", MIB) + bytes(4 * (MIB + 1))
        (folder / "shard.00000.mds").write_bytes(raw)
        edit(folder, lambda index: index["shards"][0].update(samples=MIB))
        edit(folder, lambda index: index["shards"][0]["raw_data"].update(bytes=len(raw)))
        tracemalloc.start()
        try:
            refused(mds, folder, "has samples in bytes 0…0")
            assert tracemalloc.get_traced_memory()[1] < 3 * len(raw)
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("name", ["shard.00000.mds", "chunk-0-0.bin"])
    def test_a_pipe_instead_of_a_file(self, tmp_path: Path, name: str) -> None:
        """Opening a pipe waits for a writer, for ever."""
        read, golden = (mds, "mds") if name.endswith("mds") else (litdata, "litdata")
        folder = shutil.copytree(GOLDEN / golden / "plain", tmp_path / "x")
        (folder / name).unlink()
        os.mkfifo(folder / name)
        refused(read, folder, f"{name} is not a regular file")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
@pytest.mark.parametrize("shapes", [[(3,), (0,), (2,)], [(2, 3), (0, 4), (1, 0)], [(1, 2, 2), (2, 0, 5), (0, 0, 0)]])
def test_arrays_become_the_lists_that_numpy_gives(dtype: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [np.arange(np.prod(shape)).reshape(shape).astype(dtype) for shape in shapes]
    nested = pa.from_numpy_dtype(np.dtype(dtype))
    for _ in shapes[0]:
        nested = pa.list_(nested)
    column = SampleColumn("x", nested, lambda data: arrays[data[0]])
    (batch,) = sample_batches(((f"sample {i}", [memoryview(bytes([i]))]) for i in range(3)), [column])
    assert batch.column(0).to_pylist() == [array.tolist() for array in arrays]


class TestLitData:
    @pytest.mark.parametrize(
        "leaf",
        [
            b'{"a": 1, "a": 2}',
            b"\0" + text(b'{"a": 1, "a": 2}'),
            b"\5" + struct.pack("<I", 2) + (text(b"a") + b"\7" + text(b"1")) * 2,
            b"\6" + struct.pack("<II", 1, 2) + text(b"a") * 2 + (b"\x11" + bytes(8)) * 2,
        ],
    )
    def test_a_key_twice_would_lose_a_value(self, tmp_path: Path, leaf: bytes) -> None:
        refused(litdata, one_leaf(tmp_path / "x", "json", leaf), r"chunk\.bin, sample 0, column 'x'.*'a' appears twice")

    def test_json_text_keeps_its_numbers(self, tmp_path: Path) -> None:
        leaf = b'[1e400, 0.1000000000000000055511151231257827, "\\u00e9"]'
        litdata("acme/x", one_leaf(tmp_path / "x", "json", leaf)).publish()
        assert rows("acme/x") == [{"x": leaf.decode()}]

    def test_records_without_keys_are_bounded(self, tmp_path: Path) -> None:
        leaf = b"\6" + struct.pack("<II", MIB, 0) + bytes(MIB)
        refused(litdata, one_leaf(tmp_path / "x", "json", leaf), "records without a key")

    @pytest.mark.parametrize(
        ("given", "leaf", "match"),
        [
            ("bool", b"\1abc", "requires a buffer of 1 bytes"),
            ("numpy", struct.pack("<IIII", 2, 2, 2**31, 0), "empty lists"),
            ("no_header_numpy:-1", b"abcd", "which is not known"),
        ],
    )
    def test_leaves_of_another_size(self, tmp_path: Path, given: str, leaf: bytes, match: str) -> None:
        refused(litdata, one_leaf(tmp_path / "x", given, leaf), match, WarpError)

    def test_a_chunk_that_is_listed_twice(self, tmp_path: Path) -> None:
        folder = shutil.copytree(GOLDEN / "litdata" / "plain", tmp_path / "x")
        refused(litdata, edit(folder, lambda index: index["chunks"].append(index["chunks"][0])), r"lists .*bin' twice")

    def test_frames_have_the_sizes_of_their_samples(self, tmp_path: Path) -> None:
        """Else each of many frames could claim 4 GiB."""
        folder = shutil.copytree(GOLDEN / "litdata" / "zstd", tmp_path / "x")
        chunk = folder / "chunk-0-0.bin"
        content = bytearray(chunk.read_bytes())
        count = struct.unpack_from("<I", content, 12)[0]
        size_at = 24 + 4 * (count + 1) + 20
        struct.pack_into("<I", content, size_at, 2**32 - 1)
        chunk.write_bytes(content)
        refused(litdata, folder, r"chunk-0-0\.bin: the frame of samples from 0 claims 4,294,967,295 bytes")


class TestWebDataset:
    def test_damage_is_found_before_rows_are_made(self, tmp_path: Path) -> None:
        """`tarfile` ends at a damaged header, as if the archive ended there."""
        path = write_tar(tmp_path / "x" / "a.tar", [("0.txt", b"x"), ("1.txt", b"y")])
        content = bytearray(path.read_bytes())
        content[1024 + 3] ^= 1
        path.write_bytes(content)
        refused(webdataset, tmp_path / "x", r"a\.tar: expected a header, found none.*after member '0\.txt'")

    def test_headers_are_read_without_the_contents(self, tmp_path: Path) -> None:
        members = [("d/0.txt", b"x" * 600), ("d/" + "long" * 40, b""), ("1.bin", b"y")]
        path = write_tar(tmp_path / "a.tar", members)
        data = path.read_bytes()
        found = [(each.name, data[each.offset : each.offset + each.size_bytes]) for each in list_tar(path)]
        assert found == members
        path.write_bytes(data[:700])
        with pytest.raises(InvalidSourceError, match="truncated"):
            list(list_tar(path))

    def test_a_suffix_that_is_the_column_of_keys(self, tmp_path: Path) -> None:
        write_tar(tmp_path / "x" / "a.tar", [("a.__KEY__", b"x"), ("a.txt", b"y")])
        refused(webdataset, tmp_path / "x", "has the suffix __key__")

    def test_suffixes_are_bounded(self, tmp_path: Path) -> None:
        """Names with dates have dots, and each suffix would be a column of all samples."""
        write_tar(tmp_path / "x" / "a.tar", [(f"a.{i}.jpg", b"") for i in range(MAX_SAMPLE_SUFFIXES + 1)])
        refused(webdataset, tmp_path / "x", "different suffixes")


class TestHuggingFace:
    @staticmethod
    def save(folder: Path, **files: Any) -> Path:
        folder.mkdir(parents=True)
        table = pa.table({"i": [1]})
        with pa.ipc.new_stream(str(folder / "data.arrow"), table.schema) as stream:
            stream.write_table(table)
        for name, document in {"state": {"_data_files": [{"filename": "data.arrow"}]}, **files}.items():
            (folder / f"{name}.json").write_text(json.dumps(document))
        return folder

    def test_a_file_or_a_split_twice(self, tmp_path: Path) -> None:
        twice = self.save(tmp_path / "x", state={"_data_files": [{"filename": "data.arrow"}] * 2})
        refused(huggingface, twice, r"state\.json lists 'data\.arrow' twice")
        self.save(tmp_path / "y" / "train")
        (tmp_path / "y" / "dataset_dict.json").write_text('{"splits": ["train", "train"]}')
        refused(huggingface, tmp_path / "y", r"dataset_dict\.json lists 'train' twice")

    def test_features_that_are_no_object(self, tmp_path: Path) -> None:
        for files in ([], [{"filename": "data.arrow"}]):
            folder = self.save(tmp_path / f"{len(files)}", state={"_data_files": files}, dataset_info={"features": [1]})
            refused(huggingface, folder, r"dataset_info\.json has features of a list")

    def test_hostile_names_of_files_do_not_replace_each_other(self, tmp_path: Path) -> None:
        """The last row wants the names that the rows before it have taken."""
        names = ["x.png", "00000003-x.png", "00000003-2-x.png", "X.png"]
        cells = [{"bytes": b"\x89PNG\r\n\x1a\n%d" % i, "path": name} for i, name in enumerate(names)]
        image = pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
        pq.write_table(pa.table({"image": image}), tmp_path / "a.parquet")
        huggingface("acme/x", tmp_path, media={"image": "image"}).publish()
        artifact = wd.dataset("acme/x").artifact()
        assert [artifact.read(row["image"]) for row in rows("acme/x")] == [cell["bytes"] for cell in cells]

    def test_files_that_rows_name_stay_on_disk(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "root" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        os.mkfifo(tmp_path / "root" / "pipe.png")
        files = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

        def source(path: str) -> Path:
            pq.write_table(
                pa.table({"image": pa.array([{"bytes": None, "path": path}], files)}), tmp_path / "a.parquet"
            )
            return tmp_path / "a.parquet"

        options = {"media": {"image": "image"}, "media_root": tmp_path / "root"}
        huggingface("acme/x", source("a.png"), **options).publish()  # type: ignore[arg-type]
        assert wd.dataset("acme/x").artifact().read("a.png") == b"\x89PNG\r\n\x1a\n"
        for path, match in (("pipe.png", "is not a regular file"), ("a\0b", "is not a path|cannot be read")):
            with pytest.raises(InvalidSourceError, match=rf"row 0, column 'image'.*({match})"):
                huggingface("acme/x", source(path), **options)  # type: ignore[arg-type]


class TestWarpdata3:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Root:
        return Root(tmp_path / "root")

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda manifest: manifest.update(locations=5), f"{VERSION}.json is damaged"),
            (
                lambda manifest: manifest["tables"]["main"].update(shards=manifest["tables"]["main"]["shards"] * 2),
                "table 'main' lists .* twice",
            ),
            (lambda manifest: manifest["tables"]["main"]["shards"][0].update(hash="A" * 64), "differs from its hash"),
        ],
    )
    def test_manifests_with_impossible_values(self, root: Root, change: Any, match: str) -> None:
        manifest = root.keyed()
        change(manifest)
        with pytest.raises(InvalidSourceError, match=match):
            warpdata3("vision/pets", root.publish(manifest))

    def test_a_latest_version_that_names_no_address(self, root: Root) -> None:
        path = root.publish(root.keyed())
        latest = path / "manifests" / "vision" / "pets" / "latest.json"
        latest.write_text(json.dumps({"version": "z", "manifest": "http://["}))
        with pytest.raises(InvalidSourceError, match=r"latest\.json is damaged"):
            warpdata3("vision/pets", path)


def test_a_panic_of_a_library_is_a_damaged_file() -> None:
    """Libraries in Rust raise it beside `Exception`, so that a handler of errors does not see it."""
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(InvalidSourceError, match=r"x\.lance is damaged: PanicException: out of range"):  # noqa: SIM117
        with source_errors("x.lance"):
            raise panic("out of range")
    with pytest.raises(KeyboardInterrupt), source_errors("x.lance"):
        raise KeyboardInterrupt
