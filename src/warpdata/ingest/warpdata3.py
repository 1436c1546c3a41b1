"""Datasets of the releases 3.0 of `warpdata`, in a local directory or a local copy of a bucket.

All three layouts keep `manifests/WORKSPACE/NAME/VERSION.json` and `latest.json`. Shards are named by a key below
`data/WORKSPACE/NAME/VERSION`, by a URI that ends in `objects/ab/cd/SHA256`, or by a `file://` or `local://` URI of a
registered file or directory. Tar shards and Parquet files are published byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from warpdata.errors import InvalidSourceError, NotFoundError, UnsupportedError
from warpdata.formats.parquet import describe_all
from warpdata.ingest.options import IngestReport, OnReport, Packing, log_report
from warpdata.ingest.source_files import check_listed_once, read_json, source_errors
from warpdata.kinds.artifacts import list_sources, list_tar
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import fingerprint_file, is_digest
from warpdata.primitives.outcomes import OutcomeLog
from warpdata.primitives.paths import check_path
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

__all__ = ["warpdata3"]

_LATEST = "latest"
_VERSION = r"[0-9a-f]{12,64}"
_IN_ROOT = re.compile(r"(?:^|/)(?P<path>(?:objects/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}|data/.+))$")
_REF_TYPES = frozenset({"tar_member_path", "file_path"})
_MEDIA_TYPES = frozenset({"image", "audio", "video", "file"})


@check_arguments
def warpdata3(
    dataset_id: str,
    source: str | Path,
    *,
    store: str | Session | None = None,
    name: str | None = None,
    version: str = _LATEST,
    follow_links: bool = False,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Build a dataset from the root directory of `warpdata` 3.0, which has a directory `manifests`.

    `name` is WORKSPACE/NAME in that root; by default the new name. Tables of addons become tables. Files outside of
    the root, which local registrations name, are refused unless `follow_links` is true. Hashes that the manifest or
    the names of objects give are verified.
    """
    root = check_path(source).expanduser()
    found, path = _read_manifest(root, name or dataset_id, version)
    builder = DatasetBuilder(dataset_id, store)
    log = OutcomeLog()
    with source_errors(path):
        where = _Places(root, name or dataset_id, path.stem, tuple(found.get("locations") or ()), follow_links)
        log.expect(_field_names(found))
        row_count = _add_tables(builder, found, where, log)
        member_count = _add_artifacts(builder, found, where, log)
        _bind(builder, found, path, log)
        row_count += _add_addons(builder, found, where, log)
        if found.get("meta"):
            log.lost("meta", "pass metadata to publish to keep it")
    report(IngestReport(str(path), row_count, member_count, fields=log.outcomes()))
    return builder


def _read_manifest(root: Path, name: str, version: str) -> tuple[dict[str, Any], Path]:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or ".." in name.split("/"):
        raise InvalidSourceError(f"{name!r} is not WORKSPACE/NAME")
    folder = root / "manifests" / name
    if not folder.is_dir():
        known = sorted(f"{found.parent.name}/{found.name}" for found in root.glob("manifests/*/*") if found.is_dir())
        raise NotFoundError(
            f"{root} has no dataset {name!r}", hint=f"It has: {', '.join(known[:8])}." if known else "Check the path."
        )
    if version == _LATEST:
        version = _latest_version(folder)
    if not re.fullmatch(_VERSION, version):
        raise InvalidSourceError(f"{folder} has no version {version!r}", hint="Versions have 12 or 16 hex digits.")
    path = folder / f"{version}.json"
    return read_json(path), path


def _latest_version(folder: Path) -> str:
    """Return the newest version. Some releases write a wrong version, beside the right URI of the manifest."""
    latest = read_json(folder / "latest.json")
    version = str(latest.get("version", ""))
    with source_errors(folder / "latest.json"):
        named = Path(urlparse(str(latest.get("manifest", ""))).path).stem
    has_own = re.fullmatch(_VERSION, version) and (folder / f"{version}.json").is_file()
    return version if has_own or not re.fullmatch(_VERSION, named) else named


@dataclass(frozen=True, slots=True)
class _Places:
    """Finds the files of a manifest on this machine."""

    root: Path
    name: str
    version: str
    locations: tuple[str, ...]
    follow_links: bool

    def find(self, shard: Mapping[str, Any], what: str) -> Path:
        """Return the file or directory of a shard. `InvalidSourceError` names all places that were tried."""
        tried = list(self._candidates(shard))
        for path in tried:
            if path.exists():
                return self._checked(path, what)
        shown = ", ".join(map(str, tried)) or f"{shard.get('uri') or shard.get('key')!r}, which is not local"
        raise InvalidSourceError(f"{what} is not there: {shown}", hint="Copy the files of the bucket below the root.")

    def _candidates(self, shard: Mapping[str, Any]) -> Iterator[Path]:
        key, uri = shard.get("key"), shard.get("uri")
        if key is not None:
            yield self.root / "data" / self.name / self.version / str(key)
            for location in self.locations:
                base = str(location).replace("{version}", self.version)
                yield from self._local(base.rstrip("/") + "/" + str(key))
        if uri is not None:
            yield from self._local(str(uri))

    def _local(self, uri: str) -> Iterator[Path]:
        parsed = urlparse(uri)
        in_root = _IN_ROOT.search(unquote(parsed.path))
        if parsed.scheme == "file":
            yield Path(unquote(parsed.path))
        elif parsed.scheme == "local":
            yield self.root / (parsed.netloc + unquote(parsed.path))
        elif not parsed.scheme:
            yield self.root / uri
        if in_root is not None:
            yield self.root / in_root["path"]

    def _checked(self, path: Path, what: str) -> Path:
        if not self.follow_links and not path.resolve().is_relative_to(self.root.resolve()):
            raise InvalidSourceError(
                f"{what} is {path}, outside of {self.root}", hint="Pass follow_links=True (--follow-links) to read it."
            )
        return path

    def files(self, entry: Mapping[str, Any], what: str) -> list[Path]:
        """Return the verified files of all shards of a table or artifact."""
        paths = []
        for number, shard in enumerate(entry["shards"]):
            label = f"shard {number} of {what}"
            path = self.find(shard, label)
            self._verify(path, shard, label)
            paths.append(path)
        check_listed_once(map(str, paths), what)
        return paths

    def _verify(self, path: Path, shard: Mapping[str, Any], label: str) -> None:
        size = shard.get("byte_size")
        if size is not None and path.stat().st_size != size:
            raise InvalidSourceError(f"{label}: {path} has {path.stat().st_size:,} bytes, not {size:,}")
        given = str(shard.get("hash") or "").removeprefix("sha256:").lower()
        expected = given or (path.name if "objects" in path.parts else "")
        if is_digest(expected) and fingerprint_file(path).blob.hash != expected:
            raise InvalidSourceError(f"{label}: the content of {path} differs from its hash {expected[:12]}…")


def _field_names(found: Mapping[str, Any]) -> list[str]:
    names = [f"{noun} {name}" for noun in ("table", "artifact", "addon") for name in found.get(f"{noun}s") or {}]
    names += [f"binding {each['table']}.{each['column']}" for each in found.get("bindings") or []]
    return names + (["meta"] if found.get("meta") else [])


def _add_tables(builder: DatasetBuilder, found: Mapping[str, Any], where: _Places, log: OutcomeLog) -> int:
    rows = 0
    for name, table in found["tables"].items():
        rows += _add_table(builder, name, table, where.files(table, f"table {name!r}"))
        log.kept(f"table {name}")
    return rows


def _add_table(builder: DatasetBuilder, name: str, table: Mapping[str, Any], paths: Sequence[Path]) -> int:
    if table.get("format", "parquet") != "parquet":
        raise UnsupportedError(f"table {name!r} has format {table['format']!r}, and only parquet is read")
    if not paths:
        raise InvalidSourceError(f"table {name!r} has no shards")
    described = describe_all(paths)
    for file, shard in zip(described, table["shards"], strict=True):
        if shard.get("row_count") not in (None, file.row_count):
            raise InvalidSourceError(f"{file.path} has {file.row_count} rows, and the manifest {shard['row_count']}")
    builder.add_table(name, list(paths))
    return sum(file.row_count for file in described)


def _add_artifacts(builder: DatasetBuilder, found: Mapping[str, Any], where: _Places, log: OutcomeLog) -> int:
    members = 0
    for name, artifact in (found.get("artifacts") or {}).items():
        if artifact.get("compression") not in (None, "none"):
            raise UnsupportedError(f"artifact {name!r} has compression {artifact['compression']!r}, which is not read")
        if artifact["kind"] == "directory":
            (shard,) = artifact["shards"]
            folder = where.find(shard, f"artifact {name!r}")
            Packing(follow_links=where.follow_links).add(builder, name, folder)
            members += len(list_sources(folder, follow_links=where.follow_links))
        elif artifact["kind"] == "tar_shards":
            paths = where.files(artifact, f"artifact {name!r}")
            Packing("webdataset_shards").add(builder, name, paths)
            members += sum(map(_count_members, paths))
        else:
            raise UnsupportedError(f"artifact {name!r} has kind {artifact['kind']!r}, which is not known")
        log.kept(f"artifact {name}")
    return members


def _count_members(path: Path) -> int:
    return sum(1 for _ in list_tar(path))


def _bind(builder: DatasetBuilder, found: Mapping[str, Any], path: Path, log: OutcomeLog) -> None:
    for each in found.get("bindings") or []:
        media_type = each.get("media_type", "file")
        if each["ref_type"] not in _REF_TYPES or media_type not in _MEDIA_TYPES:
            raise UnsupportedError(f"{path}: a binding has type {each['ref_type']!r} of {media_type!r}")
        builder.bind(each["table"], each["column"], each["artifact"], media_type)
        log.kept(f"binding {each['table']}.{each['column']}")


def _add_addons(builder: DatasetBuilder, found: Mapping[str, Any], where: _Places, log: OutcomeLog) -> int:
    """Add the tables of addons. Their parameters and search indexes have no place in a version."""
    rows = 0
    for name, addon in (found.get("addons") or {}).items():
        if not addon.get("vectors"):
            log.lost(f"addon {name}", "it has no table")
            continue
        table = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        rows += _add_table(builder, table, addon["vectors"], where.files(addon["vectors"], f"addon {name!r}"))
        log.changed(f"addon {name}", f"table {table}; its parameters and its search index are not imported")
    return rows
