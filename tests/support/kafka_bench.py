"""A broker for Kafka's clients without sockets: a `BrokerBench` that speaks their protocol."""

from io import BytesIO
from pathlib import Path
from typing import Any

from broker_bench import OPEN, BrokerBench, answers
from kio.serial import entity_reader, entity_writer
from twisted.internet.testing import StringTransport

from hermes.groups.coordinator import GroupCoordinator
from hermes.groups.local_groups import LocalGroups
from hermes.groups.offset_file import OffsetFile
from hermes.kafka.connection import KafkaConnection, KafkaFactory
from hermes.kafka.dispatching import Dispatcher, KafkaServer
from hermes.kafka.fetching.plain_fetches import Fetches
from hermes.kafka.group_wiring import FILE_NAME, TopicSizes, coordinator_settings
from hermes.kafka.producing.produces import Produces
from hermes.kafka.transactions.transactions import Transactions
from hermes.protocol.kio_messages import import_messages
from hermes.server.policies import ListenerPolicy
from hermes.storage import FileLayer, Log

__all__ = ["KafkaBench", "encode_request", "messages"]


def messages(name: str, version: int, kind: str) -> Any:
    """The module of kio with the messages of a request or a response."""
    request, response = import_messages(name, version)
    return request if kind == "request" else response


def encode_request(
    name: str,
    version: int,
    correlation_id: int = 7,
    client_id: str | None = "a test",
    **fields: Any,
) -> bytes:
    """Encode a request, with its size and its header.

    Args:
        name: as Kafka's schemas have it.
        version: the request's.
        correlation_id: the client's number for it.
        client_id: the client's name for itself.
        fields: the request's, kio's way.
    """
    kind = getattr(messages(name, version, "request"), f"{name}Request")
    buffer = BytesIO()
    header = kind.__header_schema__
    values = {
        "request_api_key": kind.__api_key__,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    entity_writer(header)(buffer, header(**values))
    entity_writer(kind)(buffer, kind(**fields))
    body = buffer.getvalue()
    return len(body).to_bytes(4) + body


class KafkaBench(BrokerBench):
    """A broker whose connections are strings, and its clients Kafka's.

    Args:
        directory: the data directory.
        options: as for `BrokerBench`.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        store = OffsetFile(str(directory / FILE_NAME), FileLayer(), lambda what: None)
        groups = GroupCoordinator(
            LocalGroups(
                store,
                0,
                lambda: (0,),
                lambda: coordinator_settings(self.settings),
                TopicSizes(self.cluster.topics),
                self.clock,
                self.shared.now_ms,
                self.shared.in_thread,
            )
        )
        self.server = KafkaServer(self.shared, self.cluster, groups)
        self.server.produces, self.server.fetches = Produces(self.server), Fetches(self.server)
        self.server.transactions = Transactions.of(self.shared, self.cluster, groups, None)
        self.dispatcher = Dispatcher(self.server)

    def connect_kafka(
        self, policy: ListenerPolicy = OPEN, address: Any = None
    ) -> tuple[KafkaConnection, Any]:
        """A new connection of a Kafka client, and its transport."""
        factory = KafkaFactory(self.connections, self.dispatcher, policy)
        connection = factory.buildProtocol(None)
        assert connection is not None
        transport = StringTransport(peerAddress=address)
        connection.makeConnection(transport)
        return connection, transport

    def flush(self, log: Log) -> None:
        """Flush a log, and tell those who wait for that."""
        log.flush()
        self.flusher._tell_committed(log)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Ask on a connection of its own; the response as kio decodes it.

        Args:
            name: as Kafka's schemas have it.
            version: the request's.
            fields: the request's, kio's way.
        """
        connection, transport = self.connect_kafka()
        connection.dataReceived(encode_request(name, version, **fields))
        self.turns(transport)
        (answer,) = answers(transport)
        connection.connectionLost()
        return decode_answer(name, version, answer)


def decode_answer(name: str, version: int, answer: bytes, correlation_id: int = 7) -> Any:
    """Decode a response without its size, and check its header."""
    kind = getattr(messages(name, version, "response"), f"{name}Response")
    header, position = entity_reader(kind.__header_schema__)(answer, 0)
    assert header.correlation_id == correlation_id
    entity, size = entity_reader(kind)(answer, position)
    assert position + size == len(answer)
    return entity
