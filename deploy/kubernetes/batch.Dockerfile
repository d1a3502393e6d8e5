# The image of a batch on Kubernetes, for driver and executors alike: the worker's image, with Java and Spark. Build both
# from the top of the repository:
#   docker build -f deploy/Dockerfile -t simhash-dedup:local .
#   docker build -f deploy/kubernetes/batch.Dockerfile -t registry.example.com/simhash-dedup-batch .
# Spark is the one that comes with PySpark, as requirements-spark.lock has it, in the worker's own virtual environment:
# the Python is the worker's, whose version of Unicode is part of every fingerprint. Of Spark's image only the script is
# taken by which Kubernetes starts executors.

FROM apache/spark:4.3.0-python3 AS spark

FROM simhash-dedup:local
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements-spark.lock ./
RUN pip install --require-hashes --requirement requirements-spark.lock && rm requirements-spark.lock
COPY --from=spark /opt/entrypoint.sh /opt/decom.sh /opt/
ENV SPARK_HOME=/opt/simhash-dedup/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=/opt/simhash-dedup/bin/python
USER 10001:10001
HEALTHCHECK NONE
ENTRYPOINT ["/opt/entrypoint.sh"]
