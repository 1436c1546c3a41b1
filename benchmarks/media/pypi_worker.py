"""Worker process of the PyPI peer. Runs under an interpreter without our package.

References are created as the peer's tables create them: one resolver for all, passed to `create_ref`.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import serve

__all__: list[str] = []

_DATASET = "bench/media"


class _PeerReader:
    def __init__(self) -> None:
        self.references: list[Any] = []
        self.positions: list[int] = []

    def publish(self, directory: str, table: str, base: str, staging: str, shard_bytes: int) -> dict[str, str]:
        """Pack the directory and publish it with a table that refers to its files.

        Return the version under which the manifest is stored. In this release the pointer to the latest version
        names another one.
        """
        publish = import_module("warpdata.publish")
        shards = publish.pack_directory_to_tar_shards(Path(directory), Path(staging), shard_size_bytes=shard_bytes)
        builder = publish.ManifestBuilder(_DATASET, base, temp_dir=Path(staging))
        builder.add_table("main", [Path(table)]).add_artifact("raw", shards)
        builder.add_binding("main", "file", "raw")
        storage = publish.create_storage(base, **_endpoint())
        plan = builder.build_plan()
        result = publish.Uploader(storage).execute_plan(plan)
        if not result.success:
            raise RuntimeError("; ".join(result.errors))
        return {"version": plan.version}

    def open(
        self, base: str, version: str, workspace: str, mode: str, paths: list[str], is_cold: bool
    ) -> dict[str, int]:
        """Open a version. Unless it is cold, read the first reference, which loads the index."""
        settings = import_module("warpdata.config").Settings(
            workspace_root=Path(workspace),
            manifest_base=base,
            cache_dir=Path(workspace, "cache"),
            mode=mode,
            s3_region="us-east-1",
            s3_endpoint_url=_endpoint().get("endpoint_url"),
        )
        opened = import_module("warpdata").dataset(_DATASET, version=version, settings=settings)
        resolver = import_module("warpdata.artifacts.resolver").ArtifactResolver(opened.manifest, settings=settings)
        create_ref = import_module("warpdata.refs").create_ref
        self.references = [create_ref("raw", path, "file", resolver) for path in paths]
        return {"bytes": 0 if is_cold else len(self.references[0].read_bytes())}

    def set_order(self, positions: list[int]) -> dict[str, int]:
        self.positions = positions
        return {"references": len(positions)}

    def read(self) -> dict[str, int]:
        references = self.references
        return {"bytes": sum(len(references[position].read_bytes()) for position in self.positions)}

    def write_index(self, paths: list[str], index: str) -> dict[str, int]:
        """Write an index as the peer's publishing code does."""
        entries = [
            {"ref": path, "shard_idx": 0, "payload_offset": 10_000 * number, "payload_size": 9000}
            for number, path in enumerate(paths)
        ]
        import_module("warpdata.artifacts.tar").write_index_parquet(entries, Path(index))
        return {"members": len(entries)}

    def find(self, index: str, path: str) -> dict[str, int]:
        """Open an index and look up one member."""
        opened = import_module("warpdata.artifacts.index").ArtifactIndex.from_parquet(Path(index))
        return {"found": int(opened.lookup(path) is not None)}


def _endpoint() -> dict[str, str]:
    url = os.environ.get("AWS_ENDPOINT_URL")
    return {"region": "us-east-1", "endpoint_url": url} if url else {}


if __name__ == "__main__":
    serve(_PeerReader())
