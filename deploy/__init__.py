"""What runs the filter: image, dashboards, Kafka and Redis as local processes.

Never imported by simhash or worker.
"""
