ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml README.md CHANGELOG.md ./
COPY proto ./proto
COPY kraftlite ./kraftlite
RUN python3 -m venv /opt/kraftlite \
 && /opt/kraftlite/bin/pip install --no-cache-dir --disable-pip-version-check . \
 && /opt/kraftlite/bin/pip uninstall -y -q pip \
 && /opt/kraftlite/bin/python -m compileall -q /opt/kraftlite/lib

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 1000 kraftlite \
 && useradd --no-log-init --uid 1000 --gid kraftlite --home-dir /var/lib/kraftlite --create-home kraftlite \
 && install -d -o kraftlite -g kraftlite /var/lib/kraftlite/data
COPY --from=build /opt/kraftlite /opt/kraftlite
COPY docker/entrypoint docker/healthy /usr/local/bin/
ENV PATH=/opt/kraftlite/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    KAFKA_LOG_DIRS=/var/lib/kraftlite/data
USER kraftlite
WORKDIR /var/lib/kraftlite
VOLUME /var/lib/kraftlite/data
EXPOSE 9092 9093 9192 19092
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/entrypoint"]
