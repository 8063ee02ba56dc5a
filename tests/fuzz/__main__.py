"""Fuzzers by name: `python -m tests.fuzz NAME ...` passes the other arguments to the fuzzer."""

import os
import sys

FUZZERS = {
    "devices": "tests.fuzz.devices",
    "disturbed": "tests.fuzz.disturbed",
    "files": "tests.fuzz.files",
    "inputs": "tests.fuzz.inputs",
    "jobs": "tests.fuzz.text.cluster",
    "long": "tests.fuzz.long",
    "names": "tests.fuzz.text.names",
    "populations": "tests.fuzz.populations",
    "stored": "tests.fuzz.stored",
    "writes": "tests.fuzz.writes",
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in FUZZERS:
        raise SystemExit(f"usage: python -m tests.fuzz {'|'.join(FUZZERS)} ...")
    os.execv(sys.executable, [sys.executable, "-m", FUZZERS[sys.argv[1]], *sys.argv[2:]])


if __name__ == "__main__":
    main()
