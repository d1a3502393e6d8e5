"""`python -m worker` is `simhash-dedup`."""

from worker.cli import main

if __name__ == "__main__":
    main()
