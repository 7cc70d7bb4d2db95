"""Encodes and appends a message that somebody typed."""

import json
import random
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from hermes.client import SyncProducer
from hermes.client.grouping import encode_records
from hermes.client.payloads import RecordData
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.forms import FieldError
from hermes.console.registry_records import RegistryRecords
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import (
    BrokerError,
    EncodingError,
    HermesError,
    SchemaRegistryError,
)
from hermes.interfaces import IPartitioner
from hermes.plugins import load_plugin
from hermes.protocol import Acks, Codec, ProduceRequest, encode_message_set
from hermes.protocol.records import Headers

TEXT, JSON, AVRO, TOMBSTONE = VALUES = ("text", "json", "avro", "tombstone")

#: A form is 64 KiB at most, and a character of a payload can take three times its bytes there.
MOST_PAYLOAD_BYTES: Final = 20_000
_MOST_HEADERS: Final = 32

# By which Hermes' own producers choose a partition for a key, and hermes produce -K.
_PARTITIONER: Final = "java-hash"


@dataclass(frozen=True, slots=True)
class TypedMessage:
    """A message as typed.

    Attributes:
        kind: one of `VALUES`: how to read the payload.
        headers: one a line: name, colon, value.
        subject: of the schema, for `avro`.
        version: of the subject; None for the latest.
    """

    kind: str
    payload: str
    key: str = ""
    headers: str = ""
    subject: str = ""
    version: int | None = None


class AppendedMessage(NamedTuple):
    partition: str
    offset: int
    size_bytes: int


class MessageSender:
    """Sends single messages. May block, and may be called in any thread."""

    def __init__(
        self, cluster: ClusterClient, cache: ReadCache, records: RegistryRecords | None
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._records = records

    def send(self, topic: TopicView, partition: str, typed: TypedMessage) -> AppendedMessage:
        """Append a message, and wait until it is flushed.

        Args:
            topic: one of 0.7's format keeps payloads only.
            partition: its name; empty to choose by the key, or any.

        Raises:
            FieldError: a field is invalid.
            HermesError: it was refused; or the outcome is unknown, and the text says so.
        """
        payload = self._payload(typed)
        row = _chosen(topic, partition, typed.key)
        if topic.counts_messages:
            more = RecordData(typed.kind == TOMBSTONE, _headers(typed.headers))
            keys = [typed.key.encode()] if typed.key else ()
            limit = len(payload) + MOST_PAYLOAD_BYTES
            data = encode_records([payload], keys, [more], Codec.NONE, max_batch_bytes=limit).data
        else:
            _refuse_records(typed)
            data = encode_message_set([payload])
        address = topic.address_of(row)
        with self._cluster.own_producer(address) as producer:
            offset = _append(producer, ProduceRequest(topic.name, row.number, data), topic)
        self._cache.forget()
        return AppendedMessage(row.name, offset, len(payload))

    def _payload(self, typed: TypedMessage) -> bytes:
        payload = typed.payload.replace("\r\n", "\n").encode()  # browsers send both
        if len(payload) > MOST_PAYLOAD_BYTES:
            raise FieldError(
                "payload",
                f"It has {len(payload):,} bytes, and {MOST_PAYLOAD_BYTES:,} is the most here: "
                "hermes produce takes larger ones.",
            )
        if typed.kind == TOMBSTONE:
            return b""
        if typed.kind == JSON:
            check_json(payload)
        elif typed.kind == AVRO:
            return self._record(typed, payload)
        return payload

    def _record(self, typed: TypedMessage, payload: bytes) -> bytes:
        if self._records is None:
            raise FieldError("value", "There is no schema registry here.")
        if not typed.subject:
            raise FieldError("subject", "Which schema is it of?")
        try:
            return self._records.encode(typed.subject, typed.version, payload)
        except SchemaRegistryError as error:
            raise FieldError("subject", str(error)) from error
        except (EncodingError, ValueError) as error:
            raise FieldError("payload", str(error)) from error


def check_json(payload: bytes) -> None:
    """Check that a payload is one JSON value. Raises FieldError if not, and says where."""
    try:
        json.loads(payload, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise FieldError("payload", f"This is not JSON: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise FieldError("payload", "This is not JSON, or nested too deep.") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _chosen(topic: TopicView, name: str, key: str) -> PartitionRow:
    if name:
        row = topic.partition(name)
        if row is None:
            raise FieldError("partition", "The topic has no such partition.")
        return row
    # As producers count them.
    rows = sorted(topic.partitions, key=lambda row: (row.broker_id, row.number))
    if key and topic.counts_messages:
        if topic.errors:  # a key's partition depends on how many there are
            raise FieldError(
                "partition",
                "A broker does not answer, so it is not known which partition the key belongs in: "
                "choose one.",
            )
        partitioner: Any = load_plugin("hermes.partitioners", _PARTITIONER, IPartitioner)
        place: int = partitioner.partition(topic.name, key, len(rows))
        return rows[place]
    able = [row for row in rows if row.holder in topic.addresses and not row.offline]
    return random.choice(able or rows)


def _headers(text: str) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise FieldError("headers", f"Line {number}: expected name: value.")
        headers.append((name.strip(), value.strip().encode()))
    if len(headers) > _MOST_HEADERS:
        raise FieldError("headers", f"More than {_MOST_HEADERS} headers.")
    return tuple(headers)


def _refuse_records(typed: TypedMessage) -> None:
    text = "Topics of format 0.7 keep payloads and nothing else."
    for name in ("key", "headers"):
        if getattr(typed, name).strip():
            raise FieldError(name, text)
    if typed.kind == TOMBSTONE:
        raise FieldError("value", text)


def _append(producer: SyncProducer, request: ProduceRequest, topic: TopicView) -> int:
    send = producer.send_records if topic.counts_messages else producer.send_acknowledged
    (outcome,) = send([request], Acks.FLUSHED)
    if isinstance(outcome, BrokerError):
        raise outcome
    if outcome.offset is None:
        raise HermesError("the broker did not say where the message is")
    return outcome.offset
