"""The WShard episode format: the public import path of `warpdata.formats.wshard`."""

from warpdata.formats.wshard import *  # noqa: F403
from warpdata.formats.wshard import __all__ as __all__
