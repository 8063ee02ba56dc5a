"""Program `partitioning`, also `python -m partitioning`."""

from partitioning.cli.commands import main

if __name__ == "__main__":
    main()
