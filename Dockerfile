# cleanerd's image: `docker build --tag cleanerd:0.1.0 .`   docs/install.md says how to run it; config/compose.yml does.
#
# The same steps as `make wheel` and a virtual environment: nothing is built here that could not be built elsewhere.

FROM rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jdk-headless python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir --constraint constraints.txt maturin
COPY agent agent
RUN bash agent/build.sh
COPY Cargo.toml Cargo.lock pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY kernel kernel
COPY cleanerd cleanerd
COPY cleanerd_lab cleanerd_lab
COPY pyspark_kafka_segments pyspark_kafka_segments
COPY config config
COPY docs docs
COPY systemd systemd
COPY tools tools
ARG COMMIT=
RUN CLEANERD_COMMIT=$COMMIT /build/bin/python tools/wheel.py /dist

FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1 AS install
COPY --from=build /dist /dist
COPY constraints.txt /dist/
RUN python -m venv /opt/cleanerd \
 && /opt/cleanerd/bin/pip install --no-cache-dir --constraint /dist/constraints.txt "$(ls /dist/*.whl)[erase]" \
 && /opt/cleanerd/bin/pip uninstall --yes pip setuptools \
 && install -D --mode 644 "$(/opt/cleanerd/bin/cleanerd agent path)" /opt/cleanerd/agent/cleanerd-agent.jar

# Java asks for its user's name, so this one has an entry.
# Drivers and executors of Spark: `docker build --target spark --tag cleanerd-spark:0.1.0 .`   docs/spark-deploy.md, Kubernetes
FROM install AS spark
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && python -m pip --python /opt/cleanerd/bin/python install --no-cache-dir --constraint /dist/constraints.txt \
    "$(ls /dist/*.whl)[spark,tables,values]" \
 && rm -r /dist \
 && ln -s lib/python3.11/site-packages/pyspark /opt/cleanerd/spark \
 && ln -s lib/python3.11/site-packages/cleanerd/cli/submitted/cleanerd_driver.py /opt/cleanerd/driver.py \
 && mkdir --parents --mode 1777 /var/lib/cleanerd \
 && groupadd --gid 1000 cleanerd \
 && useradd --uid 1000 --gid 1000 --home-dir /var/lib/cleanerd --no-create-home cleanerd
COPY config/kubernetes/spark-entrypoint.sh /opt/cleanerd/
ENV SPARK_HOME=/opt/cleanerd/spark \
    PATH=/opt/cleanerd/bin:/opt/cleanerd/spark/bin:$PATH \
    PYSPARK_PYTHON=/opt/cleanerd/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/cleanerd/bin/python \
    HOME=/var/lib/cleanerd \
    STATE_DIRECTORY=/var/lib/cleanerd
USER 1000:1000
WORKDIR /var/lib/cleanerd
ENTRYPOINT ["/opt/cleanerd/spark-entrypoint.sh"]

FROM python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1
LABEL org.opencontainers.image.title=cleanerd \
      org.opencontainers.image.description="An independent, strategy-aware log cleaner for Apache Kafka" \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=install /opt/cleanerd /opt/cleanerd
# It runs as whoever owns the broker's segments, so as any user: these are for all of them, as /tmp is.
RUN mkdir --parents --mode 1777 /var/lib/cleanerd /run/cleanerd && mkdir --parents /etc/cleanerd
ENV PATH=/opt/cleanerd/bin:$PATH \
    HOME=/var/lib/cleanerd \
    STATE_DIRECTORY=/var/lib/cleanerd \
    RUNTIME_DIRECTORY=/run/cleanerd \
    PYTHONDONTWRITEBYTECODE=1
# That of the broker in the apache/kafka image.
USER 1000:1000
WORKDIR /var/lib/cleanerd
EXPOSE 10280
STOPSIGNAL SIGTERM
# Over the control socket, so wherever the page is served; exit code 1 when the daemon says that it is not well.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["cleanerd", "status", "--quiet", "--config", "/etc/cleanerd"]
ENTRYPOINT ["cleanerd"]
CMD ["run", "--config", "/etc/cleanerd"]
