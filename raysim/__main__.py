"""`python -m raysim` is `raysim`."""

from raysim.cli.commands import main

main()
