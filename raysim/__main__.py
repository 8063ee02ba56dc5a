"""`python -m raysim` is `raysim`."""

from raysim.cli import main

main()
