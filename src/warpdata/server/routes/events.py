"""Live updates as server-sent events: heads that moved, and jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool

from warpdata.errors import RateLimitedError, WarpError
from warpdata.server.access import Action, Place, Principal
from warpdata.server.caller import ServiceOf, get_principal
from warpdata.server.database import EventRow
from warpdata.server.service import Service

__all__ = ["router"]

router = APIRouter(tags=["events"])
_POLL_S = 1.0
_MAX_LISTENERS = 64
_PAGE = 200


@router.get(
    "/events",
    summary="Follow events",
    dependencies=[Depends(get_principal)],
    response_class=StreamingResponse,
    responses={200: {"description": "An endless stream.", "content": {"text/event-stream": {}}}},
)
async def follow_events(
    request: Request,
    service: ServiceOf,
    workspace: Annotated[str | None, Query(pattern=r"^[a-z0-9_-]+$", max_length=128)] = None,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,18}$")] = None,
) -> StreamingResponse:
    """Stream events of datasets that the caller may read. It ends when the caller signs out.

    `Last-Event-ID` continues a stream that broke off; events are kept for an hour.
    """
    if getattr(request.app.state, "listeners", 0) >= _MAX_LISTENERS:
        raise RateLimitedError(f"{_MAX_LISTENERS} streams of events are open", retry_after_s=30)
    start = int(last_event_id) if last_event_id else await run_in_threadpool(_newest, service)
    return StreamingResponse(
        _stream(request, service, workspace, start),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _stream(request: Request, service: Service, workspace: str | None, last: int) -> AsyncIterator[str]:
    state = request.app.state
    state.listeners = getattr(state, "listeners", 0) + 1
    try:
        yield ": connected\n\n"
        while not await request.is_disconnected() and not state.is_ending:
            try:  # roles and sign-ins change while the stream is open
                caller = await get_principal(request, service)
            except WarpError:
                return
            rows = await run_in_threadpool(_after, service, last)
            for row in rows:
                last = row.sequence
                if _is_visible(caller, row) and workspace in (None, row.workspace):
                    yield f"id: {row.sequence}\nevent: {row.kind}\ndata: {json.dumps(row.data)}\n\n"
            if len(rows) < _PAGE:
                yield ": idle\n\n"
                await anyio.sleep(_POLL_S)
    finally:
        state.listeners -= 1


def _newest(service: Service) -> int:
    with service.database.read() as db:
        return db.scalar(select(func.max(EventRow.sequence))) or 0


def _after(service: Service, last: int) -> list[EventRow]:
    with service.database.read() as db:
        return list(
            db.scalars(select(EventRow).where(EventRow.sequence > last).order_by(EventRow.sequence).limit(_PAGE))
        )


def _is_visible(caller: Principal, row: EventRow) -> bool:
    if not row.workspace:
        return caller.roles.is_admin and caller.reach is None
    return caller.may(Action.READ, Place(row.workspace, row.dataset or None))
