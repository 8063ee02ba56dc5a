"""`python -m tests.fuzz populations FIRST STOP`: damage drawn by these seeds."""

import sys

from tests.fuzz.populations.harness import main

if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
