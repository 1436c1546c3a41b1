"""The rank of this process as the libraries that are loaded know it. Imports none of them. Pure over the modules.

A library knows more than the environment: a launcher may start processes that find their rank only later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["library_rank"]


def library_rank(modules: Mapping[str, Any] | None = None) -> tuple[int, int] | None:
    """Return `(rank, world_size)` of torch.distributed, Ray Train or JAX, the first that has one; else None.

    Lightning, Accelerate and the Trainer of Hugging Face set up torch.distributed.
    """
    known = sys.modules if modules is None else modules
    for find in (_torch_rank, _ray_rank, _jax_rank):
        found = find(known)
        if found is not None:
            return found
    return None


def _torch_rank(modules: Mapping[str, Any]) -> tuple[int, int] | None:
    distributed = modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _ray_rank(modules: Mapping[str, Any]) -> tuple[int, int] | None:
    train = modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # outside of a training function
        return None
    return None if rank is None else (rank, world_size)


def _jax_rank(modules: Mapping[str, Any]) -> tuple[int, int] | None:
    distributed = getattr(modules.get("jax"), "distributed", None)
    is_initialized = getattr(distributed, "is_initialized", None)
    if is_initialized is None or not is_initialized():
        return None
    return modules["jax"].process_index(), modules["jax"].process_count()
