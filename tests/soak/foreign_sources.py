"""Sources of other libraries for the mutants: each file of each source, and the importer that reads it."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.ingest.scenes import png, write_tar
from tests.ingest.test_warpdata3 import Root
from warpdata.ingest import IngestReport, huggingface, lance, litdata, mds, warpdata3, webdataset

__all__ = ["ForeignSource", "foreign_sources", "import_mutant"]

GOLDEN = Path(__file__).parents[1] / "golden"
ROW_COUNT = 3


@dataclass(frozen=True, slots=True)
class ForeignSource:
    """A source on disk. `has_counts`: its index says how many samples there are, so none may appear or vanish."""

    path: Path
    read: Callable[..., Any]
    has_counts: bool = False

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.path.rglob("*") if path.is_file())


def foreign_sources(directory: Path) -> list[ForeignSource]:
    """Make a small source of each kind."""
    sources = [
        ForeignSource(_without_hashes(directory / "mds"), mds, has_counts=True),
        ForeignSource(shutil.copytree(GOLDEN / "mds" / "zstd", directory / "mds-zstd"), mds, has_counts=True),
        ForeignSource(shutil.copytree(GOLDEN / "litdata" / "plain", directory / "litdata"), litdata, has_counts=True),
        ForeignSource(shutil.copytree(GOLDEN / "litdata" / "zstd", directory / "frames"), litdata, has_counts=True),
        ForeignSource(_tars(directory / "tars"), webdataset),
        ForeignSource(_saved(directory / "saved"), huggingface),
        ForeignSource(_parquet(directory / "parquet"), huggingface),
        ForeignSource(_warpdata3(directory / "old" / "root"), _read_warpdata3),
    ]
    if importlib.util.find_spec("lance") is not None:
        sources.append(ForeignSource(_lance(directory / "x.lance"), lance))
    return sources


def import_mutant(source: ForeignSource, file: Path, data: bytes) -> int:
    """Import the source with other bytes in one file, and return the number of rows."""
    valid = file.read_bytes()
    file.write_bytes(data)
    found: list[IngestReport] = []
    try:
        source.read("acme/mutant", source.path, report=found.append)
    finally:
        file.write_bytes(valid)
    rows = found[0].rows
    assert not source.has_counts or rows == ROW_COUNT, f"{file} gives {rows} rows instead of {ROW_COUNT}"
    return rows


def _without_hashes(folder: Path) -> Path:
    shutil.copytree(GOLDEN / "mds" / "plain", folder)
    index = json.loads((folder / "index.json").read_text())
    for shard in index["shards"]:
        shard["raw_data"]["hashes"] = {}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def _tars(folder: Path) -> Path:
    for number in range(ROW_COUNT):
        name = f"d/{'long' * 30 * (number % 2)}{number}"
        write_tar(
            folder / f"{number}.tar", [(f"{name}.png", png(number)), (f"{name}.cls", b"1"), (f"{name}.json", b"{}")]
        )
    return folder


def _images() -> pa.Table:
    cells = [{"bytes": png(i), "path": f"{i}.png"} for i in range(ROW_COUNT)]
    image = pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    return pa.table({"image": image, "label": pa.array([0, 1, 0]), "text": ["a", None, "c"], "v": [[1.0], [], [2.0]]})


_FEATURES = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}


def _saved(folder: Path) -> Path:
    (folder / "train").mkdir(parents=True)
    rows = _images()
    with pa.ipc.new_stream(str(folder / "train" / "data.arrow"), rows.schema) as stream:
        stream.write_table(rows)
    (folder / "train" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    (folder / "train" / "dataset_info.json").write_text(json.dumps({"features": _FEATURES}))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    return folder


def _parquet(folder: Path) -> Path:
    folder.mkdir(parents=True)
    metadata = {"huggingface": json.dumps({"info": {"features": _FEATURES}})}
    pq.write_table(_images().replace_schema_metadata(metadata), folder / "train-00000-of-00001.parquet")
    return folder


def _warpdata3(path: Path) -> Path:
    path.mkdir(parents=True)
    root = Root(path)
    return root.publish(root.keyed())


def _read_warpdata3(dataset_id: str, path: Path, **options: Any) -> Any:
    return warpdata3(dataset_id, path, name="vision/pets", **options)


def _lance(path: Path) -> Path:
    import lance as library

    library.write_dataset(_images(), path)
    return path
