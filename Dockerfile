# docker build -t kraftlite .                        a node of the cluster
# docker build -t kraftlite-spark --target spark .   the data pipeline: the same, with Spark and Java
# docker build --target prometheus .                 Prometheus with our alerts, for docker-compose.yml
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS needs
WORKDIR /src
# A compiler for what is built in C (hatch_build.py); it stays behind in this stage.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
# What is needed is installed before the source comes: a change of the source downloads none of it anew, Spark's 450 MB least of all.
COPY pyproject.toml docker/needs ./
RUN python3 -m venv /opt/kraftlite \
 && python3 needs ui > needs.txt \
 && /opt/kraftlite/bin/pip install --no-cache-dir --disable-pip-version-check -r needs.txt

FROM needs AS needs-spark
RUN python3 needs ui spark > needs.txt \
 && /opt/kraftlite/bin/pip install --no-cache-dir --disable-pip-version-check -r needs.txt

FROM needs AS source
COPY pyproject.toml hatch_build.py LICENSE README.md CHANGELOG.md ./
COPY proto ./proto
COPY kraftlite ./kraftlite
COPY pyspark_kraftlite ./pyspark_kraftlite
RUN /opt/kraftlite/bin/pip install --no-cache-dir --disable-pip-version-check '.[ui]'

FROM source AS build
RUN /opt/kraftlite/bin/pip uninstall -y -q pip \
 && /opt/kraftlite/bin/python -m compileall -q /opt/kraftlite/lib

FROM ${PYTHON_IMAGE} AS base
RUN groupadd --gid 1000 kraftlite \
 && useradd --no-log-init --uid 1000 --gid kraftlite --home-dir /var/lib/kraftlite --create-home kraftlite \
 && install -d -o kraftlite -g kraftlite /var/lib/kraftlite/data \
 && install -d -m 700 -o kraftlite -g kraftlite /var/lib/kraftlite/cluster
COPY docker/entrypoint docker/healthy /usr/local/bin/
ENV PATH=/opt/kraftlite/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    KAFKA_LOG_DIRS=/var/lib/kraftlite/data \
    KAFKA_KRAFTLITE_METRICS_HOST=0.0.0.0
WORKDIR /var/lib/kraftlite
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/entrypoint"]

FROM base AS node
COPY --from=build /opt/kraftlite /opt/kraftlite
USER kraftlite
VOLUME /var/lib/kraftlite/data
EXPOSE 9092 9093 9192 19092

FROM ${PYTHON_IMAGE} AS prometheus
RUN apt-get update \
 && apt-get install -y --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o nobody -g nogroup /data
COPY docker/observe /etc/kraftlite
RUN promtool check config /etc/kraftlite/prometheus.yml
USER nobody
VOLUME /data
EXPOSE 9090
ENTRYPOINT ["prometheus", "--config.file=/etc/kraftlite/prometheus.yml", "--storage.tsdb.path=/data"]

FROM needs-spark AS build-spark
COPY pyproject.toml hatch_build.py LICENSE README.md CHANGELOG.md ./
COPY proto ./proto
COPY kraftlite ./kraftlite
COPY pyspark_kraftlite ./pyspark_kraftlite
RUN /opt/kraftlite/bin/pip install --no-cache-dir --disable-pip-version-check '.[ui,spark]' \
 && /opt/kraftlite/bin/pip uninstall -y -q pip \
 && /opt/kraftlite/bin/python -m compileall -q /opt/kraftlite/lib

# Debian's default JRE is 17 (bookworm) or 21 (trixie): Spark 4 runs on both.
FROM base AS spark
RUN apt-get update \
 && apt-get install -y --no-install-recommends default-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o kraftlite -g kraftlite /data /var/lib/kraftlite/work
COPY --from=build-spark /opt/kraftlite /opt/kraftlite
ENV PYSPARK_PYTHON=/opt/kraftlite/bin/python \
    SPARK_WORKER_DIR=/var/lib/kraftlite/work
USER kraftlite
VOLUME /data
EXPOSE 7077 8080 8081

FROM node
