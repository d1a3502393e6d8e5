"""What spark-submit runs: the command `simhash-dedup`, of which only `batch` knows Spark.

A file of its own, because spark-submit wants one that ends in .py and puts its folder in front of the search path.
"""

from worker.cli import main

if __name__ == "__main__":
    main()
