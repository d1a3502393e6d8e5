"""The stream: pages from Kafka, one verdict a page, exactly once. `loop.py` is where to begin."""
