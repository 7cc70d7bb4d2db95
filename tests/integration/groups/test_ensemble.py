"""An ensemble of three ZooKeepers that loses the server that a client is connected to."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess, four_letter_word

from hermes.client import MessageSet, Producer, ProducerConfig, SyncProducer
from hermes.client.groups import Connector, Consumer, ConsumerConfig, MessageStream
from hermes.coordination.sessions import Session
from hermes.testing import running_broker

# Longer than any election takes, so that no session ends.
SESSION_TIMEOUT = "30s"


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    for attempt in range(3):
        servers = ZooKeeperEnsemble(tmp_path / f"ensemble-{attempt}")
        try:
            servers.start()
            break
        except RuntimeError:  # one of its nine ports was taken meanwhile, by any connection
            servers.kill()
    else:
        pytest.fail("no ensemble of ZooKeeper starts")
    yield servers
    servers.kill()


class Reader(threading.Thread):
    """Counts what a member of the group gets."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(daemon=True)
        self.values: list[int] = []
        self.stream: MessageStream = connector.create_message_streams({"clicks": 1})["clicks"][0]
        self.start()

    def run(self) -> None:
        for each in self.stream:
            self.values.append(int(each.message))


def server_of(session: Session, ensemble: ZooKeeperEnsemble) -> ZooKeeperProcess:
    """The one that a session is connected to."""
    port = session._client._connection._socket.getpeername()[1]
    (found,) = (each for each in ensemble.servers if each.port == port)
    return found


def leader_of(ensemble: ZooKeeperEnsemble) -> ZooKeeperProcess:
    (found,) = (
        each for each in ensemble.servers if "Mode: leader" in four_letter_word(each.port, "srvr")
    )
    return found


def test_everything_goes_on_without_the_server_of_a_client_and_without_the_leader(
    ensemble: ZooKeeperEnsemble, eventually: Any
) -> None:
    connect = f"{ensemble.address}/hermes"
    sent = iter(range(1_000_000))
    with ExitStack() as stack:
        for number in range(2):
            settings = {
                "broker_id": number,
                "num_partitions": 2,
                "coordination": "zookeeper",
                "zookeeper_connect": connect,
                "zookeeper_session_timeout": SESSION_TIMEOUT,
            }
            broker = stack.enter_context(running_broker(None, settings))
            with SyncProducer(broker.host, broker.port) as creator:  # on both brokers
                creator.send("clicks", 0, MessageSet.of([b"%d" % next(sent)]).data)
        config = ProducerConfig(
            zookeeper_connect=connect, acks="flushed", partitioner="round-robin", num_retries=20
        )
        producer = stack.enter_context(Producer(config))

        def join() -> tuple[Connector, Reader]:
            config = ConsumerConfig(
                group="g", zookeeper_connect=connect, zookeeper_session_timeout=SESSION_TIMEOUT
            )
            connector = stack.enter_context(Consumer.create(config))
            return connector, Reader(connector)

        def send(topic: str = "clicks") -> int:
            last = next(sent)
            producer.send(topic, b"%d" % last)
            return last

        first, reader = join()
        readers = [reader]
        session_id = first._session.session_id

        def all_came() -> bool:
            last = send()
            return {value for each in readers for value in each.values} >= set(range(last))

        eventually(all_came)
        for choose in (lambda: server_of(first._session, ensemble), lambda: leader_of(ensemble)):
            lost = choose()
            lost.kill()
            _, reader = join()  # and somebody joins right now
            readers.append(reader)
            eventually(all_came)
            eventually(lambda: all(each.stream.partitions() for each in readers))
            eventually(lambda: sum(len(each.stream.partitions()) for each in readers) == 4)
            eventually(lambda: first._session.session_id)
            assert first._session.session_id == session_id, "it goes on at another server"
            lost.start()
        brokers = first._session.children("/brokers/ids")
        assert brokers == ["0", "1"]
        received = [value for each in readers for value in each.values]
        assert len(received) == len(set(received)), "nobody was killed, nothing comes again"
