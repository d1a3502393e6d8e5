# The image of a batch on Kubernetes, for driver and executors alike. Build it from the top of the repository:
#   docker build -f deploy/kubernetes/batch.Dockerfile -t registry.example.com/simhash-dedup-batch .
# Spark's own image, because executors are started by its entry point. Its Spark must be the PySpark that is locked in
# requirements-dev.lock, and its Python the driver's: both are in this one image.

FROM apache/spark:4.3.0-python3
USER root
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY requirements.lock ./
RUN pip install --require-hashes --requirement requirements.lock
# PySpark itself comes with the image.
RUN pip install "pyarrow>=18"
COPY pyproject.toml README.md LICENSE ./
COPY simhash simhash
COPY worker worker
RUN pip install --no-deps .
USER spark
WORKDIR /tmp
