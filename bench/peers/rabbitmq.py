"""RabbitMQ: a durable classic queue with persistent messages, through pika.

Started from Debian's `rabbitmq-server` with every file, port and name of its own, so that one
that runs on the machine already is left alone. Its name server, epmd, is started by us as well:
the daemon that Erlang would leave behind otherwise.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.system import Meter, NotInstalled, free_port
from bench.support.load import MESSAGE_BYTES
from bench.support.processes import Program

__all__ = ["running"]

#: The plain script; the one in /usr/sbin changes to the service's user and its files.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_QUEUE = "figures"
_PREFETCH = 1_000
_START_SECONDS = 90.0


@contextmanager
def running(directory: Path) -> Iterator["_RabbitMQ"]:
    """Run a RabbitMQ node.

    Raises:
        NotInstalled: it, or pika, is missing.
    """
    epmd = shutil.which("epmd")
    if not _SERVER.exists() or epmd is None:
        raise NotInstalled("Debian's package rabbitmq-server is missing")
    if importlib.util.find_spec("pika") is None:
        raise NotInstalled("the Python package pika is missing")
    port, names_port = free_port(), free_port()
    environment = _environment(directory, port, names_port)
    with (
        Program(
            "epmd",
            [epmd, "-port", str(names_port), "-address", "127.0.0.1", "-relaxed_command_check"],
            directory=directory,
        ),
        Program("rabbitmq", [str(_SERVER)], directory=directory, environment=environment) as server,
    ):
        server.wait_until(
            lambda: "Server startup complete" in _text(directory / "node.log"),
            timeout_seconds=_START_SECONDS,
            what="completing its start",
        )
        yield _RabbitMQ(port)


class _RabbitMQ:
    """A `System`. It has no batches: a message is a request."""

    def __init__(self, port: int) -> None:
        import pika  # type: ignore[import-untyped]

        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._connect = pika.BlockingConnection

    def publish(self, meter: Meter, batch: int) -> None:
        payload = bytes(MESSAGE_BYTES)
        connection = self._connect(self._parameters)
        channel = connection.channel()
        channel.queue_declare(_QUEUE, durable=True)
        for _ in range(meter.messages):
            channel.basic_publish("", _QUEUE, payload, self._persistent)
            meter.advance(1)
        channel.queue_declare(_QUEUE, passive=True)  # answered behind all that was published
        meter.finish()
        connection.close()

    def consume(self, meter: Meter) -> None:
        connection = self._connect(self._parameters)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=_PREFETCH)
        deliveries = channel.consume(_QUEUE, auto_ack=True, inactivity_timeout=30)
        for _ in range(meter.messages):
            method, _properties, _body = next(deliveries)
            if method is None:
                raise TimeoutError("RabbitMQ delivers no more messages")
            meter.advance(1)
        meter.finish()
        connection.close()


def _environment(directory: Path, port: int, names_port: int) -> dict[str, str]:
    plugins = directory / "enabled_plugins"
    plugins.write_text("[].\n")
    return {
        "HOME": str(directory),  # where the node's cookie goes
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": "hermes-bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory),
        "RABBITMQ_LOGS": str(directory / "node.log"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
        ),
    }


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
