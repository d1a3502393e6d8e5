"""`python -m benchmarks.extraction`."""

from benchmarks.extraction.cli import main

if __name__ == "__main__":
    main()
