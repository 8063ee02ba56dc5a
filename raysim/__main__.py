"""Entry point of `python -m raysim`."""

from raysim.cli.commands import main

main()
