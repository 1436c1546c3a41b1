"""Artifacts, opened: from a version at hand, or by an address that another process was given."""

from __future__ import annotations

import difflib
from collections import deque
from dataclasses import dataclass
from weakref import WeakValueDictionary

from warpdata.artifacts import Artifact, ArtifactEntry, Origin
from warpdata.catalog import Resolved
from warpdata.datasets.connection import Connection, connect
from warpdata.errors import ArtifactNotFoundError
from warpdata.manifest import LoadPage, Manifest

__all__ = ["ArtifactAddress", "open_artifact"]

_KEPT_OPEN = 64


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """Which artifact of which version, in words that any process understands. Calling it opens the artifact.

    Holds no secret: whoever opens it brings settings of their own.
    """

    store: str
    dataset_id: str
    version: str
    artifact: str
    mode: str

    def __call__(self) -> Artifact:
        """The artifact as it is open in this process, or opened now."""
        found = _opened.get(self)
        if found is None:
            link = connect(self.store, mode=self.mode)
            resolved = Resolved(self.dataset_id, self.version)
            manifest = link.catalog.manifest(resolved)
            found = open_artifact(link, resolved, manifest, self.artifact, link.catalog.load_page)
        return found


_opened: WeakValueDictionary[ArtifactAddress, Artifact] = WeakValueDictionary()
_kept: deque[Artifact] = deque(maxlen=_KEPT_OPEN)
"""The latest, so that a batch which outlives its dataset does not open the artifact anew for every row."""


def open_artifact(link: Connection, resolved: Resolved, manifest: Manifest, name: str, load_page: LoadPage) -> Artifact:
    """Reads nothing. `ArtifactNotFoundError` names the artifacts there are."""
    payload = manifest.artifacts.get(name)
    if payload is None:
        names = sorted(manifest.artifacts)
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Artifacts: {', '.join(names) or 'none'}"
        raise ArtifactNotFoundError(f"{resolved.dataset_id} has no artifact {name!r}", hint=hint)
    address = ArtifactAddress(link.reader.url, resolved.dataset_id, resolved.version, name, link.mode)
    origin = Origin(link.media_reader, load_page, address, link.extract)
    artifact = Artifact(name, ArtifactEntry.of(name, payload), origin)
    _opened[address] = artifact
    _kept.append(artifact)
    return artifact
