"""Small images for the page: thumbnails of image files, and the mosaic of a dataset."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from warpdata.datasets import Dataset
from warpdata.errors import LimitExceededError
from warpdata.limits import MAX_THUMBNAIL_FILE_BYTES
from warpdata.primitives.hashing import blob_key
from warpdata.server.caller import ServiceOf
from warpdata.server.media_types import media_type
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.files import IfNoneMatch, MemberPath
from warpdata.server.routes.parameters import EntryName, RefQuery
from warpdata.server.service import Service, is_pinned
from warpdata.server.stored_files import StoredFile, find_file
from warpdata.server.thumbnails import MEDIA_TYPE

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["thumbnails"])
_SHOWN: dict[int | str, dict[str, Any]] = {
    200: {"description": "A WebP image.", "content": {MEDIA_TYPE: {}}},
    204: {"description": "There is no image to show."},
    304: {"description": "The image has the ETag of `If-None-Match`."},
}
_FOREVER = "private, max-age=31536000, immutable"
_MOSAIC_TILES = 9
_MOSAIC_EDGE = 384
_SEARCHED_MEMBERS = 64


@router.get(
    "/thumbnails/{path:path}",
    summary="Show an image small",
    responses=_SHOWN,
    response_class=Response,
    operation_id="get_thumbnail",
)
def get_thumbnail(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    path: MemberPath,
    ref: RefQuery = None,
    artifact: EntryName = None,
    edge: Annotated[Literal["64", "128", "256", "512"], Query(description="The longer side in pixels.")] = "256",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return an image as WebP, at most `edge` pixels wide and high; small images keep their size.

    The ETag has the hash of the image. Files that are no images, or too large to decode, are answered with 422.
    """
    _, dataset = service.open(dataset_id, ref)
    file = find_file(dataset, artifact, path)
    etag = f'{file.etag[:-1]}-{edge}"'
    headers = {"ETag": etag, "Cache-Control": _FOREVER if is_pinned(ref) else "private, no-cache"}
    if if_none_match is not None and etag in if_none_match:
        return Response(status_code=304, headers=headers)
    key = ("image", etag)
    made = service.thumbnails.get(key) if _is_stored(service, dataset, file) else None
    if made is None:
        made = service.thumbnails.make(key, [(path, _read(file))], int(edge))
    return Response(made, headers=headers, media_type=MEDIA_TYPE)


@router.get("/mosaic", summary="Show images of a dataset", responses=_SHOWN, response_class=Response)
def get_mosaic(service: ServiceOf, dataset_id: Readable, ref: RefQuery = None) -> Response:
    """Return nine images of a version in a square, as WebP; 204 if it has no images."""
    _, dataset = service.open(dataset_id, ref)
    headers = {"Cache-Control": _FOREVER if is_pinned(ref) else "private, no-cache"}
    files = [file for file in _find_images(dataset) if _is_stored(service, dataset, file)]
    if not files:
        return Response(status_code=204, headers=headers)
    key = ("mosaic", dataset.id, dataset.version, *(file.etag for file in files))
    made = service.thumbnails.get(key)
    if made is None:
        made = service.thumbnails.make(key, [(file.path, _read(file)) for file in files], _MOSAIC_EDGE)
    return Response(made, headers=headers, media_type=MEDIA_TYPE)


def _find_images(dataset: Dataset) -> list[StoredFile]:
    """Return images that are spread over the first column of images; without one, the first of an artifact."""
    bound = next((one for one in dataset.manifest.bindings if one.ref_type == "image"), None)
    if bound is not None:
        table = dataset.table(bound.table).raw().select([bound.column])
        count = min(_MOSAIC_TILES, table.unfiltered_count)
        rows = table.take([at * table.unfiltered_count // count for at in range(count)]) if count else None
        paths = [path for path in rows[bound.column].to_pylist() if isinstance(path, str)] if rows else []
        return [find_file(dataset, bound.artifact, path) for path in dict.fromkeys(paths)]
    for name in dataset.artifacts:
        members = dataset.artifact(name).members()
        paths = [member.path for _, member in zip(range(_SEARCHED_MEMBERS), members, strict=False)]
        shown = [path for path in paths if media_type(path).startswith("image/")][:_MOSAIC_TILES]
        if shown:
            return [find_file(dataset, name, path) for path in shown]
    return []


def _is_stored(service: Service, dataset: Dataset, file: StoredFile) -> bool:
    """Return whether the store still has the bytes: a purge takes them from versions that name them."""
    digest = file.artifact.shard_of(file.path).hash
    try:
        service.session.writer.stat(blob_key(digest, dataset.manifest.generations.get(digest)))
    except FileNotFoundError:
        return False
    return True


def _read(file: StoredFile) -> bytes:
    if file.size_bytes > MAX_THUMBNAIL_FILE_BYTES:
        raise LimitExceededError(
            f"{file.path!r} has {file.size_bytes:,} bytes; a thumbnail is of at most {MAX_THUMBNAIL_FILE_BYTES:,}"
        )
    return file.artifact.read(file.path)
