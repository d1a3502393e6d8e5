"""What runs the filter: images, dashboards, and Kafka and Redis as local processes. Never imported by simhash or worker."""
