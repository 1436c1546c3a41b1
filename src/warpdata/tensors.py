"""The public import path of `warpdata.formats.tensors`: tensor sets and views."""

from warpdata.formats.tensors import *  # noqa: F403
from warpdata.formats.tensors import __all__ as __all__
