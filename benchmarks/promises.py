"""Promises that the benchmarks check: the only place that defines a target.

A promise covers every measurement that names its id. It is kept if each of them meets the target.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from benchmarks.results import Measurement

__all__ = ["COSTS", "PROMISES", "REASONS", "SCENARIOS", "Promise", "Target", "find_promise", "judge"]

SCENARIOS = (
    "tables.open",
    "tables.scan",
    "tables.filters",
    "tables.publish",
    "tables.startup",
    "tables.commit",
    "media.references",
    "media.batches",
    "media.lookup",
    "media.first_read",
    "media.shared_shard",
    "media.packing",
    "tensors.remote_read",
    "tensors.cpu",
    "tensors.gpu",
    "streams.throughput",
    "streams.decode",
    "streams.first_batch",
    "streams.selective_read",
    "streams.resume",
    "streams.shuffle_quality",
    "streams.shared_cache",
    "episodes.windows",
    "episodes.open",
    "episodes.remote_read",
    "episodes.recorder",
    "episodes.languages",
    "cloud.reads",
    "living.appends",
    "living.edits",
    "living.reads",
    "service.requests",
    "search.scalar",
    "search.vectors",
    "labels.coco",
    "search.remote",
    "cluster.ray_data",
    "cluster.jobs",
    "service.gateway",
)
"""Module names below `benchmarks`, in the order of the report."""

COSTS = frozenset({"bytes", "requests"})
"""Quantities of which less is better, so that a ratio against a peer counts how much was saved."""

Operator: TypeAlias = Literal["≥", "≤", "<", "="]
_COMPARE: Mapping[Operator, Callable[[float, float], bool]] = {
    "≥": operator.ge,
    "≤": operator.le,
    "<": operator.lt,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Target:
    """Bound on the ratio of a measurement, or on `ours` if `is_absolute`."""

    operator: Operator
    bound: float
    unit: str = "speed"
    """Quantity that the ratio compares, or the unit of `ours`."""
    is_absolute: bool = False

    @property
    def words(self) -> str:
        suffix = f" {self.unit}" if self.is_absolute else f"× the {self.unit}"
        if not self.is_absolute and self.operator == "≥" and self.unit in COSTS:
            suffix = f"× fewer {self.unit}"
        return f"{self.operator} {self.bound:,g}{suffix}"

    def value_of(self, measurement: Measurement) -> float | None:
        return measurement.ours if self.is_absolute else measurement.ratio

    def is_met(self, measurement: Measurement) -> bool | None:
        """Return None if the measurement has no value to judge."""
        value = self.value_of(measurement)
        return None if value is None else _COMPARE[self.operator](value, self.bound)

    def margin(self, measurement: Measurement) -> float:
        """Return the distance to the bound, as a share of it; negative beyond the bound."""
        value = self.value_of(measurement)
        if value is None:
            return float("inf")
        scale = abs(self.bound) or 1.0
        if self.operator == "=":
            return -abs(value - self.bound) / scale
        return (value - self.bound if self.operator == "≥" else self.bound - value) / scale


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement about warpdata with a measurable target."""

    id: str
    scenario: str
    words: str
    target: Target
    peer: str = ""


def _absolute(bound: float, unit: str) -> Target:
    return Target("≤", bound, unit, is_absolute=True)


def _requests(bound: float) -> Target:
    return _absolute(bound, "requests")


PROMISES = (
    Promise(
        "open-time",
        "tables.open",
        "Opening a table with 2,000 shards takes as long as opening one with 20.",
        Target("≤", 1.5, "time"),
    ),
    Promise("open-requests", "tables.open", "Opening a table and reading its head takes a few requests.", _requests(6)),
    Promise(
        "open-bytes",
        "tables.open",
        "Reading the head of a table never fetches a whole shard.",
        Target("<", 100, "% of a shard", is_absolute=True),
    ),
    Promise("scan-s3-arrow", "tables.scan", "A full scan over S3.", Target("≥", 1.0), "pyarrow.dataset"),
    Promise("scan-s3-duckdb", "tables.scan", "A full scan over S3.", Target("≥", 2.0), "DuckDB"),
    *(
        Promise(f"cloud-{name}", "cloud.reads", words, Target("≥", 0.7), "a bare client")
        for name, words in {
            "scan": "A scan over a slow network.",
            "stream": "A cold shuffled stream over a slow network.",
            "tensors": "Verified tensors over a slow network.",
            "references": "Random references over a slow network.",
            "upload": "A publish over a slow network.",
        }.items()
    ),
    Promise("service-start", "service.requests", "The service starts.", Target("<", 10, "s", is_absolute=True)),
    Promise("service-memory", "service.requests", "The service rests.", Target("<", 300, "MB", is_absolute=True)),
    Promise("service-small", "service.requests", "Images through the service.", Target("≥", 0.6), "SeaweedFS"),
    Promise("service-large", "service.requests", "Large files through the service.", Target("≥", 0.6), "the library"),
    Promise("service-upload", "service.requests", "Small files sent to the service.", Target("≥", 0.5), "the library"),
    Promise("service-samples", "service.requests", "A page of samples.", Target("<", 300, "ms", is_absolute=True)),
    Promise("service-readers", "service.requests", "500 readers at once.", Target("≤", 0, "errors", is_absolute=True)),
    Promise("index-bitmap", "search.scalar", "A label and a split through bitmaps.", Target("≥", 50.0), "DuckDB"),
    Promise("index-btree", "search.scalar", "A narrow range through a btree.", Target("≥", 10.0), "DuckDB"),
    Promise("index-lance", "search.scalar", "Filters through scalar indexes.", Target("≥", 1.0), "Lance"),
    *(
        Promise(
            f"vectors-{name.lower()}", "search.vectors", "Nearest vectors, filtered or not.", Target("≥", 1.0), name
        )
        for name in ("Lance", "faiss", "hnswlib", "DuckDB")
    ),
    Promise("vectors-build", "search.vectors", "Rows written, and indexes built.", Target("≥", 1.0), "Lance"),
    Promise("search-cold-trips", "search.remote", "Round trips of a first search.", _absolute(4, "round trips")),
    Promise(
        "search-cold-bytes",
        "search.remote",
        "The part of an index of vectors that a first search reads.",
        _absolute(5, "% of the index"),
    ),
    Promise("search-cold-lance", "search.remote", "A first search over S3.", Target("≥", 1.0), "Lance"),
    Promise("index-sample", "search.scalar", "A sample stratified by an index.", Target("≥", 10.0), "DuckDB"),
    Promise("scan-local", "tables.scan", "A full scan of local files.", Target("≥", 0.95), "the faster peer"),
    Promise("filter-s3", "tables.filters", "A filter over S3.", Target("≥", 1.0), "DuckDB"),
    Promise("filter-local", "tables.filters", "A filter over local files.", Target("≥", 1.0), "DuckDB"),
    Promise("publish-rate", "tables.publish", "Publishing files to S3.", Target("≥", 0.8), "bare obstore puts"),
    Promise(
        "publish-memory",
        "tables.publish",
        "The peak memory of publishing does not grow with the file.",
        Target("≤", 1.2, "memory"),
    ),
    Promise(
        "startup-import",
        "tables.startup",
        "`import warpdata` is almost free.",
        Target("<", 30, "ms", is_absolute=True),
    ),
    Promise("startup-help", "tables.startup", "`warp --help` is quick.", Target("<", 150, "ms", is_absolute=True)),
    Promise(
        "commit-bytes",
        "tables.commit",
        "Appending one shard to 100,000 writes a small part of the shard list.",
        Target("≤", 0.05, "bytes"),
    ),
    Promise("ray-read", "cluster.ray_data", "Batches of Ray Data.", Target("≥", 1.0), "ray.data.read_parquet"),
    Promise("ray-write", "cluster.ray_data", "Writes of Ray Data.", Target("≥", 0.9), "write_parquet"),
    Promise("ray-overhead", "cluster.jobs", "Ray adds little to a small job.", Target("<", 5, "s", is_absolute=True)),
    Promise("ray-workers", "cluster.jobs", "Two workers of Ray.", Target("≥", 1.7), "one worker"),
    Promise("gateway-reads", "service.gateway", "Serving images by S3.", Target("≥", 0.5), "SeaweedFS"),
    Promise(
        "gateway-listing",
        "service.gateway",
        "Listing 100,000 keys in pages, in seconds.",
        _absolute(2, "s"),
    ),
    Promise("coco-import", "labels.coco", "Importing boxes of COCO.", Target("≥", 1.0), "pycocotools"),
    Promise("coco-export", "labels.coco", "Exporting them.", Target("≤", 30, "s", is_absolute=True)),
    Promise("append-time", "living.appends", "Appending rows one by one.", Target("≥", 0.67), "LanceDB"),
    Promise(
        "append-files",
        "living.appends",
        "Appends of one row leave few files.",
        Target("≤", 20, "files", is_absolute=True),
    ),
    Promise("edit-bytes", "living.edits", "Versions with few edited rows.", Target("≥", 1.0, "bytes"), "each peer"),
    Promise("edit-time", "living.edits", "Editing 0.1 % of the rows.", Target("≥", 1.0), "each peer"),
    Promise(
        "delete-bytes",
        "living.edits",
        "Deleting 400 scattered rows of a million.",
        Target("<", 10, "kB", is_absolute=True),
    ),
    Promise("column-bytes", "living.edits", "Adding a column writes only that column.", Target("≤", 1.01, "bytes")),
    Promise("deleted-scan", "living.reads", "A scan with 1 % deleted rows.", Target("≥", 0.9), "no deleted rows"),
    Promise("stratified-sample", "living.reads", "A stratified sample without an index.", Target("≥", 1.0), "DuckDB"),
    Promise("diff-time", "living.reads", "A diff costs what differs, not what is stored.", Target("≤", 1.5, "time")),
    Promise(
        "reference-local",
        "media.references",
        "References from a local store, in random order.",
        Target("≥", 10),
        "warpdata 3.0.27 (PyPI)",
    ),
    Promise(
        "reference-remote",
        "media.references",
        "References over S3 without a cache, in random order.",
        Target("≥", 2),
        "warpdata 3.0.27 (PyPI)",
    ),
    Promise(
        "reference-epoch",
        "media.references",
        "A cold epoch of references over S3 in mode `auto`.",
        Target("≥", 10),
        "warpdata 3.0.27 (PyPI)",
    ),
    Promise(
        "reference-cached",
        "media.references",
        "A second epoch of references, from the cache.",
        Target("≥", 0.9),
        "one plain file per member",
    ),
    Promise(
        "batch-remote",
        "media.batches",
        "Batches of 256 scattered references over S3.",
        Target("≥", 0.8),
        "bare obstore ranges",
    ),
    Promise(
        "lookup-time",
        "media.lookup",
        "Opening an index of 100,000 members and finding one.",
        Target("≥", 50),
        "warpdata 3.0.27 (PyPI)",
    ),
    Promise(
        "lookup-memory",
        "media.lookup",
        "The peak memory of look-ups does not grow with the index.",
        Target("≤", 1.2, "memory"),
    ),
    Promise(
        "first-read-requests",
        "media.first_read",
        "The first reference of an unknown dataset takes a few requests after the manifest.",
        _requests(5),
    ),
    Promise(
        "shared-shard-bytes",
        "media.shared_shard",
        "Concurrent processes fetch each byte of a cold shard once.",
        Target("≤", 1.1, "bytes"),
    ),
    Promise(
        "tensor-plan-requests",
        "tensors.remote_read",
        "`explain` predicts the requests of a read.",
        Target("=", 1, "requests"),
    ),
    Promise(
        "tensor-plan-bytes", "tensors.remote_read", "`explain` predicts the bytes of a read.", Target("=", 1, "bytes")
    ),
    Promise(
        "tensor-slice-bytes",
        "tensors.remote_read",
        "A slice along the first axis fetches little more than it keeps.",
        Target("≤", 1.1, "bytes"),
    ),
    Promise(
        "tensor-republish-bytes",
        "tensors.remote_read",
        "A version with one changed matrix uploads only that matrix.",
        Target("≤", 1.1, "bytes"),
    ),
    Promise("tensor-cpu-whole", "tensors.cpu", "Loading and summing whole files.", Target("≥", 1.0), "safetensors"),
    Promise("tensor-cpu-slice", "tensors.cpu", "An eighth along dim 1.", Target("≥", 2.0), "safetensors"),
    Promise("tensor-gpu-bus", "tensors.gpu", "A whole load uses most of the bus.", Target("≥", 0.75)),
    Promise("tensor-gpu-whole", "tensors.gpu", "A whole load onto a GPU.", Target("≥", 6), "safetensors `load_file`"),
    Promise("tensor-gpu-slice", "tensors.gpu", "Slices and transposes onto a GPU.", Target("≥", 5), "safetensors"),
    Promise(
        "tensor-gpu-verified",
        "tensors.gpu",
        "A verified load keeps at least three quarters of the rate of an unverified one.",
        Target("≥", 0.75),
    ),
    Promise(
        "tensor-gpu-verified-slice",
        "tensors.gpu",
        "A verified slice of the first axis keeps at least half the rate of an unverified one.",
        Target("≥", 0.5),
    ),
    Promise(
        "tensor-gpu-published",
        "tensors.gpu",
        "Published tensors load as fast as local files.",
        Target("≥", 0.9),
    ),
    Promise("epoch-cold", "streams.throughput", "A cold shuffled epoch of images.", Target("≥", 1.0), "the best peer"),
    Promise("epoch-warm", "streams.throughput", "A warm shuffled epoch of images.", Target("≥", 1.0), "the best peer"),
    Promise(
        "decode-same",
        "streams.decode",
        "Images decoded and resized by Pillow.",
        Target("≥", 1.0),
        "the best peer",
    ),
    Promise(
        "decode-fastest",
        "streams.decode",
        "Images decoded and resized by the fastest libraries installed.",
        Target("≥", 1.3),
        "the best peer with Pillow",
    ),
    Promise("first-batch-time", "streams.first_batch", "Time to the first batch.", Target("≥", 2.0), "the best peer"),
    Promise(
        "first-batch-requests",
        "streams.first_batch",
        "The first batch of 2,000 shards takes at most 3 requests more than that of 20.",
        Target("≤", 3, "more requests", is_absolute=True),
    ),
    Promise(
        "selective-bytes",
        "streams.selective_read",
        "Fewer bytes per kept sample if 1% of the samples are kept.",
        Target("≥", 10, "bytes"),
        "the best peer without a filter",
    ),
    Promise(
        "resume-samples",
        "streams.resume",
        "A killed epoch resumes with another number of ranks and loses or repeats no sample.",
        Target("=", 0, "samples", is_absolute=True),
    ),
    Promise(
        "resume-batches",
        "streams.resume",
        "A resumed epoch has the global batches of an undisturbed one.",
        Target("=", 100, "% of the batches", is_absolute=True),
    ),
    Promise(
        "shuffle-entropy",
        "streams.shuffle_quality",
        "Batches of sorted data under a small cache are as mixed as after a full shuffle.",
        Target("≥", 0.98, "entropy"),
    ),
    Promise(
        "shuffle-requests",
        "streams.shuffle_quality",
        "A shuffled epoch takes few requests more than one in order.",
        Target("≤", 1.3, "requests"),
    ),
    Promise(
        "cache-version-bytes",
        "streams.shared_cache",
        "A second version that shares 95% of its bytes is fetched incrementally.",
        Target("≤", 0.1, "bytes"),
    ),
    Promise(
        "cache-jobs-bytes",
        "streams.shared_cache",
        "Two concurrent jobs with one cache fetch each byte once.",
        Target("≤", 1.05, "bytes"),
    ),
    Promise("window-memmap", "episodes.windows", "Windows of uncompressed episodes.", Target("≥", 0.8), "np.memmap"),
    Promise("window-h5py", "episodes.windows", "Windows of compressed episodes.", Target("≥", 3.0), "h5py"),
    Promise("window-zarr", "episodes.windows", "Windows of compressed episodes.", Target("≥", 3.0), "zarr"),
    Promise("episode-channel", "episodes.open", "One small channel of a large episode.", Target("≥", 2.0), "h5py"),
    Promise("episode-index", "episodes.open", "The index of 1,000 episodes.", Target("≥", 5.0), "h5py"),
    Promise(
        "episode-remote-requests",
        "episodes.remote_read",
        "Two of twenty channels over S3 take a few requests.",
        _requests(3),
    ),
    Promise(
        "episode-remote-bytes",
        "episodes.remote_read",
        "Two of twenty channels over S3 fetch little more than these channels.",
        Target("≤", 1.1, "bytes"),
    ),
    Promise(
        "recorder-rate",
        "episodes.recorder",
        "Recording small steps.",
        Target("≥", 20_000, "steps/s", is_absolute=True),
    ),
    Promise(
        "recorder-tail",
        "episodes.recorder",
        "The 99th percentile of an append stays near the median.",
        Target("<", 10, "time"),
    ),
    Promise(
        "language-speed",
        "episodes.languages",
        "Windows and recordings in Go and TypeScript.",
        Target("≥", 1.0),
        "Python",
    ),
)

REASONS: Mapping[str, str] = {
    "tables.open": "warpdata resolves a name, a manifest and a page of shards first; the peers receive the file list.",
    "tables.filters": "Parquet statistics exclude NaN, so `x1 > 2.0` cannot be pruned in files from other writers. "
    "DuckDB prunes them and loses NaN rows. Arrow decodes whole row groups, and warpdata verifies page checksums.",
    "tables.publish": "Publishing reads footers and hashes every file before the first put.",
    "media.batches": "Each scattered reference is a request of its own. Mode `auto` fetches whole shards for an epoch.",
    "media.first_read": "In mode `auto` three of the eight requests complete the table's shard in the background.",
    "media.packing": "Publishing reads every file twice, to learn the version and to send it, and hashes each member.",
    "tensors.remote_read": "A verified slice fetches whole hash leaves.",
    "tensors.cpu": "safetensors maps the file and sums it in place; warpdata copies it into memory of its own first.",
    "streams.decode": "Bare threads read a list of files: they neither verify samples nor keep an order to resume.",
    "streams.first_batch": "WebDataset receives a list of URLs. A name costs one round trip more than a version, then "
    "follow the manifest, the pages of shards, and four places of the data.",
    "streams.selective_read": "At 50% warpdata fetches whole shards; Lance requests each row.",
    "search.scalar": "Recorded on a machine with a load of sixteen, where a process waits for its turn. By itself a "
    "count through bitmaps takes 0.7 ms of processor time, and 250 rows of two columns 5 ms: half of it Python, which "
    "opens pages one after the other. Lance reads single rows in native threads.",
    "search.vectors": "Recorded before a warm search kept to one thread. A query passes the planner, the members that "
    "its filter selects, and exact scores in Python: about a millisecond, where faiss and hnswlib are asked with "
    "arrays in memory, without filter, versions or storage.",
    "search.remote": "With 200,000 vectors, blocks of codes are larger than lists, and a filter that keeps 200 rows "
    "compares all of them: each is in a block of its own, and more requests than may be in flight take turns.",
    "streams.shuffle_quality": "Lance takes a request per row and shuffles fully.",
    "labels.coco": "pycocotools keeps dictionaries as they were parsed; warpdata checks each object and commits rows.",
    "living.appends": "A commit of warpdata is on the disk when it is acknowledged: the rows, the manifest and the "
    "commit are synced at the same time, then the head. LanceDB leaves this to the operating system. The rest is "
    "Python: each append opens the newest version, checks its rows, writes a file, and reads back what it encodes.",
    "living.edits": "Each of the ten commits is durable, as for appends. An update decodes all columns of the row "
    "groups that it changes, because changed rows are stored whole; Lance and icechunk read the columns that they set. "
    "Oxen and DVC read and write the whole file.",
    "living.reads": "Rows between deleted ones are copied, which a scan without them is not. The old and new values "
    "of changed samples are read, and the smallest unit of a read is a page of 1,024 rows. A thousand changed rows are "
    "in nearly all pages of the larger table, and ten are in each page of the smaller one.",
    "episodes.windows": "The first read of a compressed window decodes two chunks and verifies two checksums. Streams "
    "with `shuffle=True` decode each chunk about once.",
    "episodes.open": "warpdata verifies the checksum of the channel. From a name, it resolves the version and the "
    "index first.",
    "episodes.remote_read": "The whole file is one request. From a name, warpdata sends six, several of them in "
    "sequence.",
    "episodes.recorder": "h5py receives 64 steps per call, without rewards, validation or a journal.",
    "episodes.languages": "Node decodes zstd and computes checksums in WebAssembly, Python in C with instructions for "
    "them.",
    "cloud.reads": "The bare client knows all ranges in advance, and neither verifies nor decodes. warpdata resolves a "
    "name, a manifest, pages and footers first, and begins with 32 requests at a time.",
}
"""Why warpdata is slower, by scenario; shown if the scenario has a loss."""


def find_promise(promise_id: str) -> Promise:
    for promise in PROMISES:
        if promise.id == promise_id:
            return promise
    raise KeyError(f"promise {promise_id!r} is not defined in promises.py")


def judge(measurement: Measurement) -> Measurement:
    """Return the measurement with the target of its promise and whether it is met."""
    if not measurement.promise:
        return measurement
    target = find_promise(measurement.promise).target
    return replace(measurement, target=target.words, is_met=target.is_met(measurement))
