# A broker in a container:   docker build -t hermes-log .
#                            docker run -p 127.0.0.1:9092:9092 -v hermes-data:/var/lib/hermes hermes-log
#
# docs/deployment.md says how to configure it, and examples/compose.yaml runs it with Prometheus and Grafana.

ARG PYTHON=3.13

# The compiled core needs a compiler, and nothing else does: it stays behind with this stage.
FROM python:${PYTHON}-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY setup.cfg setup.py pyproject.toml LICENSE ./
COPY docs/description.md docs/
COPY hermes hermes
COPY pyspark_hermes pyspark_hermes
COPY twisted twisted
# Without a compiler an installation is as good, only slower; an image that is slow for ever is refused.
# twistd's list of plugins is written now, because the broker's user may not write it.
RUN python -m venv /opt/hermes \
    && /opt/hermes/bin/pip install --no-cache-dir '.[avro,kafka,msgpack]' \
    && /opt/hermes/bin/hermes --version | grep -F 'core: compiled' \
    && /opt/hermes/bin/pip uninstall --yes pip \
    && cd / && /opt/hermes/bin/twistd --help > /dev/null

FROM python:${PYTHON}-slim
RUN groupadd --system --gid 9092 hermes \
    && useradd --system --uid 9092 --gid hermes --home-dir /var/lib/hermes --shell /usr/sbin/nologin hermes \
    && install -d -o hermes -g hermes -m 0750 /var/lib/hermes
COPY --from=build /opt/hermes /opt/hermes
COPY examples/container/broker.yaml /etc/hermes/broker.yaml
ENV PATH=/opt/hermes/bin:$PATH \
    PYTHONUNBUFFERED=1
USER hermes
WORKDIR /var/lib/hermes
VOLUME /var/lib/hermes
# Clients; the coordination of consumer groups.
EXPOSE 9092 2181
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s \
    CMD ["python", "-c", "from http.client import HTTPConnection; c = HTTPConnection('127.0.0.1', 9093, timeout=8); c.request('GET', '/health/ready'); exit(c.getresponse().status != 200)"]
CMD ["twistd", "-n", "--pidfile=", "hermes", "--config", "/etc/hermes/broker.yaml"]
