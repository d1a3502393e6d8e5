"""What passes the pipeline's borders: pages, verdicts, dead letters, and their bytes."""
