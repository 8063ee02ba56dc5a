"""`python -m tests.faults.files`: hostile data files, drawn, through every command that reads data."""

from tests.faults.files.harness import main

if __name__ == "__main__":
    main()
