"""The pipeline: crawled pages in, verdicts out, exactly once. Built on the library `simhash`."""
