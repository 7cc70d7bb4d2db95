"""ActiveMQ: a persistent queue in KahaDB, the paper's store, through STOMP.

Started from Debian's `activemq` with every file and port of its own. As in the paper the broker
writes to its store asynchronously: the journal isn't synced for every message.
"""

import importlib.util
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.system import Meter, NotInstalled, free_port
from bench.support.load import MESSAGE_BYTES
from bench.support.processes import Program

__all__ = ["running"]

_JAR = Path("/usr/share/activemq/bin/activemq.jar")
_HOME = _JAR.parents[1]
_QUEUE = "/queue/figures"
_PREFETCH = 1_000
_START_SECONDS = 90.0
_PATIENCE_SECONDS = 120.0

_CONFIGURATION = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false"
          dataDirectory="{data}">
    <persistenceAdapter>
      <kahaDB directory="{data}/kahadb" journalDiskSyncStrategy="never"/>
    </persistenceAdapter>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


@contextmanager
def running(directory: Path) -> Iterator["_ActiveMQ"]:
    """Run an ActiveMQ broker.

    Raises:
        NotInstalled: it, Java or stomp.py is missing.
    """
    java = shutil.which("java")
    if java is None or not _JAR.exists():
        raise NotInstalled("Debian's package activemq is missing")
    if importlib.util.find_spec("stomp") is None:
        raise NotInstalled("the Python package stomp.py is missing")
    port = free_port()
    configuration = directory / "activemq.xml"
    configuration.write_text(_CONFIGURATION.format(data=directory / "data", port=port))
    arguments = [
        *(java, "-Xmx512m", f"-Dactivemq.home={_HOME}", f"-Dactivemq.base={directory}"),
        *("-jar", str(_JAR), "start", f"xbean:file:{configuration}"),
    ]
    with Program("activemq", arguments, directory=directory) as server:
        server.wait_until(
            lambda: _accepts(port), timeout_seconds=_START_SECONDS, what="accepting connections"
        )
        yield _ActiveMQ(port)


class _ActiveMQ:
    """A `System`. It has no batches: a message is a request."""

    def __init__(self, port: int) -> None:
        self._port = port

    def publish(self, meter: Meter, batch: int) -> None:
        payload = "x" * MESSAGE_BYTES
        arrived = threading.Event()
        connection = _connection(self._port)
        connection.set_listener("", _listener(on_receipt=lambda _: arrived.set()))
        for _ in range(meter.messages - 1):
            connection.send(_QUEUE, payload, persistent="true")
            meter.advance(1)
        connection.send(_QUEUE, payload, persistent="true", receipt="last")
        meter.advance(1)
        _await(arrived, "acknowledge the last message")
        meter.finish()
        connection.disconnect()

    def consume(self, meter: Meter) -> None:
        done = threading.Event()
        seen = 0

        def on_message(_frame: Any) -> None:
            nonlocal seen
            seen += 1
            meter.advance(1)
            if seen == meter.messages:
                meter.finish()
                done.set()

        connection = _connection(self._port)
        connection.set_listener("", _listener(on_message=on_message))
        headers = {"activemq.prefetchSize": str(_PREFETCH)}
        connection.subscribe(_QUEUE, id="1", ack="auto", headers=headers)
        _await(done, "deliver all messages")
        connection.disconnect()


def _connection(port: int) -> Any:
    import stomp  # type: ignore[import-untyped]

    connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    connection.connect(wait=True)
    return connection


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _listener(**methods: Any) -> Any:
    import stomp

    return type(
        "Listener",
        (stomp.ConnectionListener,),
        {name: staticmethod(method) for name, method in methods.items()},
    )()


def _await(event: threading.Event, what: str) -> None:
    if not event.wait(_PATIENCE_SECONDS):
        raise TimeoutError(f"ActiveMQ did not {what} within {_PATIENCE_SECONDS:g} s")
