"""Nearest vectors at four selectivities, beside Lance, plain faiss, hnswlib and DuckDB, at a recall of 95 %.

The clock runs from a query to the numbers of the rows. All sides keep their index open, and all get the same filters:
a bound on a column that has no order. faiss gets the rows that the filter keeps for nothing; the others evaluate it.
faiss, hnswlib and DuckDB hold all vectors in memory; DuckDB compares all of them, or without a filter asks the HNSW
index of its extension vss. Other peers read the fewest lists, or visit the fewest neighbours, of a series of powers of
two that reach the recall on other queries.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.harness.data import scratch
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave_all
from benchmarks.results import Measurement, Outcome
from warpdata import Dataset, DatasetBuilder, dataset
from warpdata.settings import load_settings

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["DATASET", "SELECTIVITIES", "K", "Vectors", "build_lance", "find_fewest", "run", "search_lance"]

DATASET = "bench/vectors"
K = 10
SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
_SIZE, _LATENT = 128, 16
_RECALL = 0.95
_QUERIES = 20
_NOTE = (
    "Recall of ours: {recalls}, from all rows to one in a thousand. Index: {size}. Build, seconds: {builds}. "
    "Peers that do not reach a recall of 95 %, or are not installed, are left out."
)

Search = Callable[["NDArray[np.float32]", float], Sequence[int]]


@dataclass(frozen=True)
class Vectors:
    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    keys: NDArray[np.float64]
    """Numbers from 0 to 1. A filter keeps those below its selectivity."""

    @staticmethod
    def make(count: int) -> Vectors:
        """Draw vectors of length 1, and queries from the same clusters."""
        import numpy as np

        random = np.random.default_rng(7)
        plane = random.standard_normal((_LATENT, _SIZE)).astype(np.float32)
        centres = random.standard_normal((max(count // 1000, 4), _LATENT)).astype(np.float32)

        def draw(rows: int) -> NDArray[np.float32]:
            near = centres[random.integers(0, len(centres), rows)] + 0.7 * random.standard_normal((rows, _LATENT))
            vectors = (near @ plane + 0.3 * random.standard_normal((rows, _SIZE))).astype(np.float32)
            out: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            return out

        parts = [draw(min(50_000, count - start)) for start in range(0, count, 50_000)]
        return Vectors(np.concatenate(parts), draw(2 * _QUERIES), random.random(count))

    def table(self) -> pa.Table:
        import pyarrow as pa

        column = pa.FixedSizeListArray.from_arrays(pa.array(self.vectors.reshape(-1)), _SIZE)
        return pa.table({"key": self.keys, "emb": column})

    def kept(self, selectivity: float) -> NDArray[np.int64]:
        import numpy as np

        return np.flatnonzero(self.keys < selectivity)

    def recall(self, search: Search, selectivity: float) -> float:
        """Return the part of the best rows that a search finds."""
        import numpy as np

        kept, found = self.kept(selectivity), 0
        vectors = self.vectors[kept]
        for query in self.queries[_QUERIES:]:
            best = kept[np.argsort(-(vectors @ query), kind="stable")[:K]]
            found += len(set(best.tolist()) & set(map(int, search(query, selectivity))))
        return found / (K * (len(self.queries) - _QUERIES))


def run(options: RunOptions) -> Outcome:
    data = Vectors.make(20_000 if options.is_smoke else 1_000_000)
    builds: dict[str, float] = {}
    started = time.perf_counter()
    ours = _build_ours(data)
    builds["ours"] = time.perf_counter() - started
    peers: dict[str, Callable[[float], Search | None]] = {}
    builders = {
        "faiss": _build_faiss,
        "hnswlib": _build_hnswlib,
        "DuckDB": _build_duckdb,
        "DuckDB vss": _build_duckdb_vss,
    }
    if not options.is_smoke:  # its build takes a minute, however small the data
        builders["Lance"] = _build_lance
    for name, build in builders.items():
        started = time.perf_counter()
        try:
            peers[name] = build(data)
        except ImportError:
            continue
        builds[name] = time.perf_counter() - started
    comparisons: dict[str, Mapping[str, Arm]] = {}
    recalls = []
    for selectivity in SELECTIVITIES:
        search = _ours(ours)
        recalls.append(data.recall(search, selectivity))
        found = {name: make(selectivity) for name, make in peers.items()}
        arms = {"ours": search, **{name: peer for name, peer in found.items() if peer is not None}}
        comparisons[f"{selectivity:.1%} of the rows"] = {
            name: _asking(each, data, selectivity) for name, each in arms.items()
        }
    timings = interleave_all(comparisons, options.rounds)
    measurements: list[Measurement] = []
    for case, compared in comparisons.items():
        for name in compared:
            if name != "ours":
                promise = f"vectors-{name.lower().partition(' ')[0]}"
                measurements.append(timings[case].compare(case, "ours", name, peer_name=name, promise=promise))
    if "Lance" in builds:
        ratio = builds["Lance"] / builds["ours"]
        measurements.append(
            Measurement(
                case="rows written and both indexes built, once",
                unit="s",
                ours=builds["ours"],
                peer=builds["Lance"],
                peer_name="Lance",
                ratio=ratio,
                ratio_range=(ratio, ratio),
                promise="vectors-build",
            )
        )
    size_bytes = sum(index.size_bytes for index in ours.indexes() if index.kind == "ivf")
    scratch("vectors-store")
    scratch("vectors-lance")
    return Outcome(
        title="Nearest vectors under filters",
        method=f"{len(data.vectors):,} vectors of {_SIZE} numbers near a surface of {_LATENT} dimensions; k = {K}.",
        measurements=measurements,
        notes=[
            _NOTE.format(
                recalls=", ".join(f"{recall:.3f}" for recall in recalls),
                size=format_bytes(size_bytes),
                builds=", ".join(f"{name} {seconds:.1f}" for name, seconds in builds.items()),
            )
        ],
    )


def _build_ours(data: Vectors) -> Dataset:
    store, settings = scratch("vectors-store").as_uri(), load_settings()
    DatasetBuilder(DATASET, store, settings=settings).add_table("main", data.table()).publish()
    opened = dataset(DATASET, store=store, settings=settings).create_index("main", "emb", kind="ivf")
    return opened.create_index("main", "key", kind="btree")


def _ours(opened: Dataset) -> Search:
    def search(query: NDArray[np.float32], selectivity: float) -> Sequence[int]:
        where = None if selectivity == 1 else f"key < {selectivity}"
        found: list[int] = opened.search(near=("emb", query), k=K, filter=where, columns=[]).row_numbers.tolist()
        return found

    return search


def find_fewest(data: Vectors, selectivity: float, make: Callable[[int], Search]) -> int | None:
    """Return the fewest probes with which a search reaches the recall."""
    powers = (2**power for power in range(1, 11))
    return next((probes for probes in powers if data.recall(make(probes), selectivity) >= _RECALL), None)


def _fewest(data: Vectors, selectivity: float, make: Callable[[int], Search]) -> Search | None:
    """Return the search with the fewest probes that reaches the recall."""
    probes = find_fewest(data, selectivity, make)
    return None if probes is None else make(probes)


def build_lance(data: Vectors, target: str, options: dict[str, str] | None = None) -> Any:
    """Write the rows with indexes of vectors and of keys. `ImportError` if Lance is not installed."""
    import lance  # type: ignore[import-not-found, unused-ignore]

    opened = lance.write_dataset(data.table(), target, storage_options=options)
    lists = round(len(data.vectors) ** 0.5)
    opened.create_index("emb", "IVF_PQ", metric="cosine", num_partitions=lists, num_sub_vectors=_SIZE // 4)
    opened.create_scalar_index("key", "BTREE")
    return lance.dataset(target, storage_options=options)


def search_lance(opened: Any, probes: int) -> Search:
    """Return the search of a dataset of `build_lance`."""

    def search(query: NDArray[np.float32], selectivity: float) -> Sequence[int]:
        near = {"column": "emb", "q": query, "k": K, "nprobes": probes, "refine_factor": 4}
        where = None if selectivity == 1 else f"key < {selectivity}"
        rows = opened.to_table(columns=[], with_row_id=True, nearest=near, filter=where, prefilter=True)
        found: list[int] = rows["_rowid"].to_pylist()
        return found

    return search


def _build_lance(data: Vectors) -> Callable[[float], Search | None]:
    opened = build_lance(data, str(scratch("vectors-lance") / "rows.lance"))
    return lambda selectivity: _fewest(data, selectivity, lambda probes: search_lance(opened, probes))


def _build_faiss(data: Vectors) -> Callable[[float], Search | None]:
    import importlib

    import numpy as np

    faiss: Any = importlib.import_module("faiss")
    lists = round(len(data.vectors) ** 0.5)
    quantizer = faiss.IndexFlatIP(_SIZE)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, _SIZE, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.train(data.vectors[:: max(len(data.vectors) // (lists * 64), 1)])
    index.add(data.vectors)

    def make_at(selectivity: float) -> Search | None:
        bits = np.packbits(data.keys < selectivity, bitorder="little")
        selector = None if selectivity == 1 else faiss.IDSelectorBitmap(bits)

        def make(probes: int) -> Search:
            parameters = faiss.SearchParametersIVF(nprobe=probes, sel=selector)

            def search(query: NDArray[np.float32], _selectivity: float) -> Sequence[int]:
                found: list[int] = index.search(query[None], K, params=parameters)[1][0].tolist()
                return found

            return search

        return _fewest(data, selectivity, make)

    return make_at


def _build_duckdb(data: Vectors) -> Callable[[float], Search | None]:
    """Load the rows into a table of DuckDB, which compares all that a filter keeps."""
    import duckdb

    connection = duckdb.connect()
    connection.from_arrow(data.table()).create("vectors")

    def search(query: NDArray[np.float32], selectivity: float) -> Sequence[int]:
        text = (
            f"SELECT rowid FROM vectors WHERE key < {selectivity} "
            f"ORDER BY array_cosine_distance(emb, ?::FLOAT[{_SIZE}]) LIMIT {K}"
        )
        return [row[0] for row in connection.execute(text, [query.tolist()]).fetchall()]

    return lambda _: search


def _build_duckdb_vss(data: Vectors) -> Callable[[float], Search | None]:
    """Build the HNSW index of DuckDB's extension `vss`, which DuckDB uses only without a filter."""
    import importlib
    from pathlib import Path

    import duckdb

    package = importlib.import_module("duckdb_extension_vss")
    assert package.__file__ is not None
    extension = Path(package.__file__).parent / f"extensions/v{duckdb.__version__}/vss.duckdb_extension"
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    connection.from_arrow(data.table()).create("vectors")
    connection.execute(
        "CREATE INDEX near ON vectors USING HNSW (emb) WITH (metric = 'cosine', M = 16, ef_construction = 100)"
    )
    text = f"SELECT rowid FROM vectors ORDER BY array_cosine_distance(emb, ?::FLOAT[{_SIZE}]) LIMIT {K}"

    def make_at(selectivity: float) -> Search | None:
        if selectivity < 1:
            return None

        def make(breadth: int) -> Search:
            def search(query: NDArray[np.float32], _selectivity: float) -> Sequence[int]:
                return [row[0] for row in connection.execute(text, [query.tolist()]).fetchall()]

            connection.execute(f"SET hnsw_ef_search = {max(breadth, K)}")
            return search

        return _fewest(data, selectivity, make)

    return make_at


def _build_hnswlib(data: Vectors) -> Callable[[float], Search | None]:
    import hnswlib  # type: ignore[import-not-found, unused-ignore]

    index = hnswlib.Index("ip", _SIZE)
    index.init_index(len(data.vectors), M=16, ef_construction=100)
    index.add_items(data.vectors)

    def make_at(selectivity: float) -> Search | None:
        if selectivity < 1:
            return None  # its filter is a call of Python for each node

        def make(breadth: int) -> Search:
            def search(query: NDArray[np.float32], _selectivity: float) -> Sequence[int]:
                index.set_ef(max(breadth, K))
                found: list[int] = index.knn_query(query[None], K, num_threads=1)[0][0].tolist()
                return found

            return search

        return _fewest(data, selectivity, make)

    return make_at


def _asking(search: Search, data: Vectors, selectivity: float) -> Arm:
    """Ask for another vector in each round. All arms ask for the same ones in the same order."""
    numbers: Iterator[int] = itertools.count()

    def begin() -> Callable[[], int]:
        query = data.queries[next(numbers) % _QUERIES]
        return lambda: len(search(query, selectivity))

    return begin
