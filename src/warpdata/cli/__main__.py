"""`python -m warpdata.cli` is `warp`, for where scripts are not on the path."""

from warpdata.cli import main

main()
