"""A producer with acks=flushed under load, against a broker that is killed again and again."""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import yaml
from certificates import Certificates
from hermes_testkit import BrokerProcess

from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.client import ProducerMetrics, SendHandle
from hermes.security.users import Users

__all__ = ["RestartableBroker", "check_no_loss", "check_outlived", "secured"]

#: What clients bring, by settings.
Security: TypeAlias = Mapping[str, Any]
PLAIN: Security = MappingProxyType({})

# How many outcomes more must be known before the next kill, so that each hits a busy broker.
_OUTCOMES_BETWEEN = 300


class RestartableBroker(BrokerProcess):
    """A broker that listens on the same port after every start."""

    def kill_and_restart(self) -> None:
        self.kill()
        settings = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
        endpoint = f"tcp:{self.port}:interface=127.0.0.1"
        listen = settings["listen"]
        settings["listen"] = (
            {**listen, "endpoint": endpoint} if isinstance(listen, dict) else endpoint
        )
        self.config_file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self.start()


def secured(certificates: Certificates, folder: Path) -> tuple[dict[str, Any], Security]:
    """The settings of a broker that has TLS and wants users, and what its client brings."""
    users = folder / "users"
    users.touch(mode=0o600)
    made = Users.none().with_user("writer", "the writer's pa55word", iterations=4096)
    users.write_bytes(made.encode())
    pair = certificates.server
    listen = {
        "endpoint": "tcp:0:interface=127.0.0.1",
        "tls": {"certificate": str(pair.certificate), "key": str(pair.key)},
        "authentication": "scram",
    }
    security = {
        "tls_ca": str(certificates.ca),
        "user": "writer",
        "password": "the writer's pa55word",
    }
    return {"listen": listen, "users_file": str(users)}, security


class _Load:
    """Sends numbered messages from a thread until told to stop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._stop = threading.Event()
        self._known = threading.Condition()
        self.known_count = 0
        self.handles: list[SendHandle] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            handle = self._producer.send("clicks", b"message %d" % len(self.handles))
            handle.add_done_callback(self._count)
            self.handles.append(handle)

    def _count(self, handle: SendHandle) -> None:
        with self._known:
            self.known_count += 1
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        with self._known:
            goal = self.known_count + count
            assert self._known.wait_for(lambda: self.known_count >= goal, 60)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def check_no_loss(broker: RestartableBroker, kills: int, security: Security = PLAIN) -> None:
    """Kill and restart a broker under load; then look up everything that was reported as sent.

    Each message must be at the offset that was reported for it, in the order of sending; all the
    others must have been reported as failed.
    """
    settings = {"acks": "flushed", "queue_size": 500, "num_retries": 2, "retry_backoff": "20ms"}
    handles, metrics = _send_under_kills(broker, kills, **settings, **security)
    sent = _sent(handles)
    assert len(sent) >= _OUTCOMES_BETWEEN
    assert len(sent) + metrics.failed == len(handles)
    assert list(sent) == sorted(sent)
    assert sent.items() <= _stored(broker.port, security).items()


def check_outlived(broker: RestartableBroker, kills: int, security: Security = PLAIN) -> None:
    """Kill and restart a broker under a producer with defaults: every message is sent."""
    handles, metrics = _send_under_kills(broker, kills, **security)
    sent = _sent(handles)
    assert (len(sent), metrics.sent, metrics.failed) == (len(handles), len(handles), 0)
    assert list(sent) == sorted(sent)
    assert sent.items() <= _stored(broker.port, security).items()


def _send_under_kills(
    broker: RestartableBroker, kills: int, **settings: object
) -> tuple[list[SendHandle], ProducerMetrics]:
    """Send numbered messages while a broker is killed and restarted; their handles, all done."""
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{broker.port}",
        producer_type="async",
        **settings,
    )
    with Producer(config) as producer:
        load = _Load(producer)
        try:
            for _ in range(kills):
                load.wait_for_more(_OUTCOMES_BETWEEN)
                broker.kill_and_restart()
            load.wait_for_more(_OUTCOMES_BETWEEN)
        finally:
            load.stop()
    assert all(each.done for each in load.handles)
    return load.handles, producer.metrics()


def _sent(handles: list[SendHandle]) -> dict[int | None, bytes]:
    """The messages that were reported as sent, in the order of sending, by their offsets."""
    return {
        handle.result(0).offset: b"message %d" % number
        for number, handle in enumerate(handles)
        if handle.exception(0) is None
    }


def _stored(port: int, security: Security) -> dict[int | None, bytes]:
    """Every message of the log by its own offset."""
    messages: dict[int | None, bytes] = {}
    offset = 0
    with SimpleConsumer("127.0.0.1", port, **security) as consumer:
        while fetched := list(consumer.fetch(FetchRequest("clicks", 0, offset, 1 << 20))):
            for message, following in fetched:
                messages[offset] = message.payload
                offset = following
    return messages
