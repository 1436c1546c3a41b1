"""Tensor sets and views: the public import path of `warpdata.formats.tensors`."""

from warpdata.formats.tensors import *  # noqa: F403
from warpdata.formats.tensors import __all__ as __all__
