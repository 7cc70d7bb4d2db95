"""A client of Kafka's protocol that does what it is told: one request, one response, no retries."""

import socket
from dataclasses import fields
from datetime import timedelta
from typing import Any

from kafka_bench import encode_request, messages
from kio.serial import entity_reader
from kio.static.primitive import i32Timedelta, i64Timedelta

from hermes.protocol.record_batches import decode_header
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.security.scram import ScramClient

__all__ = ["ANY_ACL", "KafkaConversation", "ask_once", "parts", "topics_of"]

#: A filter of ACLs that all of them match.
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


class KafkaConversation:
    """One connection.

    Args:
        address: `host:port`.
        timeout_seconds: how long an answer may take.
    """

    def __init__(self, address: str, timeout_seconds: float = 60) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        """End it."""
        self._file.close()
        self._socket.close()

    def __enter__(self) -> "KafkaConversation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log_in(self, user: str, password: str) -> None:
        """Say who it is, by SCRAM-SHA-256."""
        client = ScramClient(user, password)
        self.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-256")
        challenge = self.ask("SaslAuthenticate", 2, auth_bytes=client.first()).auth_bytes
        final = self.ask("SaslAuthenticate", 2, auth_bytes=client.answer(challenge)).auth_bytes
        client.verify(final)

    def ask(self, name: str, version: int, **given: Any) -> Any:
        """Send a request, and read its response.

        Raises:
            ConnectionError: the connection was closed instead.
        """
        return self.ask_encoded(name, version, encode_request(name, version, **given))

    def ask_encoded(self, name: str, version: int, frame: bytes) -> Any:
        """The same with a request that is encoded already."""
        self._socket.sendall(frame)
        return self.receive(name, version)

    def receive(self, name: str, version: int) -> Any:
        """Read the response to a request that was sent."""
        body = self._read(int.from_bytes(self._read(4)))
        kind = getattr(messages(name, version, "response"), f"{name}Response")
        assert body[:4] == (7).to_bytes(4), "the answer to another request"
        position = 4 if kind.__header_schema__.__version__ == 0 else 5
        entity, size_bytes = entity_reader(kind)(body, position)
        assert position + size_bytes == len(body), f"{body[position + size_bytes :]!r} is left"
        return entity

    def send(self, data: bytes) -> None:
        """Send bytes, and read nothing."""
        self._socket.sendall(data)

    def produce(self, topic: str, *records: Record, acks: int = -1) -> Any:
        """Produce records to partition 0; the partition's part of the response."""
        make = parts("Produce", 9)
        data = make.PartitionProduceData(index=0, records=encode_batch(records))
        response = self.ask(
            "Produce",
            9,
            acks=acks,
            timeout=make.timeout(30_000),
            transactional_id=None,
            topic_data=(make.TopicProduceData(name=topic, partition_data=(data,)),),
        )
        return response.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int, partition: int = 0, end: int | None = None
    ) -> list[Record]:
        """Fetch from an offset on, without waiting; the records of all batches that came.

        With `end` only those of the batches that begin before it; no other is looked at.
        """
        found = self.fetch_partition(topic, offset, partition)
        assert found.error_code.value == 0, found.error_code
        data, position, records = found.records or b"", 0, []
        while position < len(data) and (end is None or offset < end):
            header = decode_header(data, position)
            records += iterate_records(data, header, position)
            position += header.size_bytes
            offset = header.next_offset
        return records

    def fetch_partition(self, topic: str, offset: int, partition: int = 0) -> Any:
        """Fetch from an offset on, without waiting; what is answered, an error or not."""
        make = parts("Fetch", 12)
        wanted = make.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        response = self.ask(
            "Fetch",
            12,
            max_wait=make.timeout(0),
            min_bytes=0,
            topics=(make.FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        (found,) = response.responses[0].partitions
        return found

    def _read(self, size_bytes: int) -> bytes:
        data = self._file.read(size_bytes)
        if len(data) < size_bytes:
            raise ConnectionError("the broker has closed the connection")
        return data


class parts:  # noqa: N801 - it stands for a module
    """The parts of a request in one version: `parts("Fetch", 12).FetchTopic(...)`.

    What the version doesn't have is dropped.
    """

    def __init__(self, name: str, version: int) -> None:
        self._module = messages(name, version, "request")

    def __getattr__(self, name: str) -> Any:
        kind = getattr(self._module, name)
        known = {each.name for each in fields(kind)}
        return lambda **given: kind(**{key: given[key] for key in given if key in known})

    @staticmethod
    def timeout(milliseconds: int) -> Any:
        """A duration."""
        return i32Timedelta.parse(timedelta(milliseconds=milliseconds))

    @staticmethod
    def long_timeout(milliseconds: int) -> Any:
        """A duration of 64 bits."""
        return i64Timedelta.parse(timedelta(milliseconds=milliseconds))


def topics_of(client: KafkaConversation, *names: str) -> tuple[Any, ...]:
    """What Metadata says of topics, which it creates if they aren't there."""
    make = parts("Metadata", 12)
    asked = tuple(make.MetadataRequestTopic(name=each, topic_id=None) for each in names)
    found: tuple[Any, ...] = client.ask(
        "Metadata",
        12,
        topics=asked,
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    ).topics
    return found


def ask_once(address: str, name: str, version: int, **fields: Any) -> Any:
    """Send one request on a connection of its own; the response."""
    with KafkaConversation(address) as conversation:
        return conversation.ask(name, version, **fields)
