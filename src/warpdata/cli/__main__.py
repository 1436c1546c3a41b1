"""`python -m warpdata.cli` runs `warp` when scripts are not on the path."""

from warpdata.cli import main

main()
