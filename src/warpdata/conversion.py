"""Conversion of episodes: the public import path of `warpdata.formats.convert`."""

from warpdata.formats.convert import *  # noqa: F403
from warpdata.formats.convert import __all__ as __all__
