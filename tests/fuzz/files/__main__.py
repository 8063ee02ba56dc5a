"""`python -m tests.fuzz files`: hostile data files, drawn, through every command that reads data."""

from tests.fuzz.files.harness import main

if __name__ == "__main__":
    main()
