"""The routes of the API: one router for each resource.

A new resource is a module with a `router`, and a line in `ROUTERS`.
"""

from fastapi import APIRouter

from warpdata.server.routes import (
    datasets,
    files,
    health,
    refs,
    samples,
    session,
    workspaces,
)

__all__ = ["API_PREFIX", "ROUTERS", "unversioned"]

API_PREFIX = "/api/v1"
ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    workspaces.router,
    datasets.router,
    refs.router,
    samples.router,
    files.router,
)
"""Routers under `API_PREFIX`."""
unversioned = health.router
