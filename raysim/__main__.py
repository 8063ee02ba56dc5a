"""Program `raysim`, also `python -m raysim`."""

import signal
import sys


def main() -> None:
    """Run the command line; while it is imported, Ctrl-C ends the process without a traceback."""
    if sys.platform == "win32":
        sys.stderr.write("raysim: must run on Linux or macOS; on Windows use WSL, or the program partitioning alone\n")
        raise SystemExit(2)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from raysim.cli import commands

    signal.signal(signal.SIGINT, before)
    commands.main()


if __name__ == "__main__":
    main()
