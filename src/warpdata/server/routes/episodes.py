"""Episodes: lists of a set, one episode with its place in a list, and the bytes of its files by range.

A player reads the files itself. Ranges of uncompressed blocks are verified here, with the checksums of the index; all
others have checksums of the format, which the player verifies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from warpdata.errors import NotFoundError
from warpdata.kinds.episodes import StoredEpisode
from warpdata.limits import MIB
from warpdata.server.byte_ranges import is_one_range, parse_range
from warpdata.server.caller import ServiceOf
from warpdata.server.episodes import (
    EpisodeQuery,
    find_place,
    list_episodes,
    opened_episode,
    pinned_version,
    view_episodes,
)
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.files import IfNoneMatch, RangeHeader
from warpdata.server.routes.objects import BYTES
from warpdata.server.routes.parameters import Answer, EntryName, FilterText, PageCursor, RefQuery
from warpdata.server.service import is_pinned

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["episodes"])
_FOREVER = "private, max-age=31536000, immutable"
_PART_BYTES = 4 * MIB
_MAX_ID_LENGTH = 1024
_MAX_PAGE = 200

SetName = Annotated[EntryName, Query(alias="set")]
EpisodeId = Annotated[str, Query(alias="id", min_length=1, max_length=_MAX_ID_LENGTH, examples=["ep_003"])]
Sort = Annotated[
    str,
    Query(
        max_length=1024,
        description="A column of the index, `metadata.NAME`, `reward`, `success`, or `number`, the order of the set.",
        examples=["reward"],
    ),
]
Order = Annotated[Literal["asc", "desc"], Query(description="Episodes without a value come last.")]
Kept = Annotated[
    FilterText,
    Query(alias="filter", description="An SQL expression over the columns of the index and `reward`."),
]


class EpisodeView(Answer):
    """An episode in a list. `reward` is the sum of its rewards; `success` and `tags` are of its metadata."""

    number: int
    id: str
    env_id: str
    length: int
    duration_s: float | None
    reward: float | None
    success: bool | None
    tags: list[str]
    metadata: dict[str, Any]
    channels: list[str]
    cameras: list[str]
    size_bytes: int
    files: int


class EpisodeListView(Answer):
    """Episodes of one version. `total` counts all that match; `fields` are the names of metadata to sort by."""

    version: str
    set: str
    episodes: list[EpisodeView]
    fields: list[str]
    total: int
    next_cursor: str | None


class EpisodeFileView(Answer):
    """A file of an episode. Read it at `/episode/file`, with `chunk` as its number."""

    chunk: int
    hash: str
    size_bytes: int
    first_step: int
    length: int


class EpisodeChannelView(Answer):
    """A declared channel, or a prediction or uncertainty of one."""

    block: str
    id: str
    dtype: str
    shape: list[int]
    encoding: str | None


class EpisodeDetailView(Answer):
    """An episode with its files and channels. `position` is its place in the list of the same filter and order."""

    version: str
    set: str
    episode: EpisodeView
    identity: str
    timebase: str
    tick_hz: float | None
    document: dict[str, Any]
    channels: list[EpisodeChannelView]
    files: list[EpisodeFileView]
    position: int | None
    total: int
    previous: str | None
    next: str | None


@router.get("/episodes", summary="List episodes", operation_id="list_episodes")
def get_episodes(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    ref: RefQuery = None,
    set_name: SetName = None,
    expression: Kept = None,
    sort: Sort = "number",
    order: Order = "asc",
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 100,
    cursor: PageCursor = None,
    offset: Annotated[
        int, Query(ge=0, le=2**53, description="The number of episodes to leave out, without a cursor.")
    ] = 0,
) -> EpisodeListView:
    """List the episodes of a set that a filter keeps. All pages of one read show the version of the first page.

    A filter or an order by `reward` reads the rewards of the set once, of at most 20,000 episodes.
    """
    query = EpisodeQuery(set_name, expression, sort, order == "desc", limit, cursor, offset)
    _, dataset = service.open(dataset_id, pinned_version(query) or ref)
    page = list_episodes(service, dataset, query)
    return EpisodeListView(
        version=dataset.version,
        set=page.name,
        episodes=[EpisodeView(**one) for one in page.episodes],
        fields=page.fields,
        total=page.total,
        next_cursor=page.next_cursor,
    )


@router.get("/episode", summary="Show an episode")
def get_episode(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    episode_id: EpisodeId,
    ref: RefQuery = None,
    set_name: SetName = None,
    expression: Kept = None,
    sort: Sort = "number",
    order: Order = "asc",
) -> EpisodeDetailView:
    """Show an episode with its files and channels, and its neighbours in the list of a filter and an order."""
    _, dataset = service.open(dataset_id, ref)
    episodes, episode = opened_episode(dataset, set_name, episode_id)
    query = EpisodeQuery(set_name, expression, sort, order == "desc")
    position, total, previous, following = find_place(service, dataset, query, episode.number)
    info = episode.info
    return EpisodeDetailView(
        version=dataset.version,
        set=episodes.name,
        episode=EpisodeView(**view_episodes(episodes, [episode.number])[0]),
        identity=episode.identity,
        timebase=info.timebase.type,
        tick_hz=info.timebase.hz,
        document=dict(info.metadata),
        channels=[
            EpisodeChannelView(
                block=block,
                id=spec.id,
                dtype=str(spec.dtype),
                shape=list(spec.shape),
                encoding=str(spec.attributes["encoding"]) if "encoding" in spec.attributes else None,
            )
            for block, spec in [*info.channels.items(), *info.lanes.items()]
        ],
        files=_files(episode),
        position=position,
        total=total,
        previous=previous,
        next=following,
    )


@router.head(
    "/episode/file", summary="Show the size of a file of an episode", responses=BYTES, operation_id="head_episode_file"
)
@router.get(
    "/episode/file",
    summary="Read a file of an episode",
    responses=BYTES,
    response_class=Response,
    operation_id="get_episode_file",
)
def get_episode_file(
    *,
    request: Request,
    service: ServiceOf,
    dataset_id: Readable,
    episode_id: EpisodeId,
    ref: RefQuery = None,
    set_name: SetName = None,
    chunk: Annotated[int, Query(ge=0, le=4096, description="The number of the file.")] = 0,
    wanted: RangeHeader = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a WShard file of an episode, or a range of it."""
    _, dataset = service.open(dataset_id, ref)
    _, episode = opened_episode(dataset, set_name, episode_id)
    if chunk >= len(episode.chunks):
        raise NotFoundError(
            f"episode {episode_id!r} has {len(episode.chunks)} files, and no file {chunk}", hint="Files begin at 0."
        )
    file = episode.chunks[chunk]
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{file.hash}"',
        "Cache-Control": _FOREVER if is_pinned(ref) else "private, no-cache",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Disposition": "attachment",
    }
    if if_none_match is not None and headers["ETag"] in if_none_match:
        return Response(status_code=304, headers=headers)
    span = parse_range(wanted, file.size_bytes)
    if span is None:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{file.size_bytes}"})
    status, kind = 200, "application/octet-stream"
    headers["Content-Length"] = str(len(span))
    if is_one_range(wanted) and span:
        status, headers["Content-Range"] = 206, f"bytes {span.start}-{span.stop - 1}/{file.size_bytes}"
    if request.method == "HEAD" or not span:
        return Response(b"", status, headers, kind)
    assert file.file is not None, "opened, so that reads of its blocks are verified"
    if len(span) <= _PART_BYTES:
        return Response(bytes(file.source.read_range(span.start, span.stop)), status, headers, kind)
    return StreamingResponse(_parts(file, span), status, headers, kind)


def _parts(file: Any, span: range) -> Iterator[bytes]:
    for start in range(span.start, span.stop, _PART_BYTES):
        yield bytes(file.source.read_range(start, min(start + _PART_BYTES, span.stop)))


def _files(episode: StoredEpisode) -> list[EpisodeFileView]:
    found, first_step = [], 0
    for number, file in enumerate(episode.chunks):
        found.append(
            EpisodeFileView(
                chunk=number, hash=file.hash, size_bytes=file.size_bytes, first_step=first_step, length=file.length
            )
        )
        first_step += file.length
    return found
