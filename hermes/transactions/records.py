"""The records of the topic `__transaction_state`, as Kafka writes them.

    key      int16 0 | string transactional id
    value    int16 version (0 or 1) | int64 producer id | int16 epoch | int32 timeout, ms
             | int8 state | partitions | int64 updated, ms | int64 started, ms | tags (version 1)
    partitions    array, null while the state is EMPTY, of (string topic | array of int32)

    tag 0    int64 previous producer id       1    int64 next producer id
    tag 2    int16 version of the producer       1000    int16 last epoch: Hermes' own

Version 1 has compact strings and arrays, and tags after each structure. A null value says that the
transactional id is forgotten. Version 0, which Kafka wrote until 4.0, is only read.

Source: Kafka 4's TransactionLogKey.json and TransactionLogValue.json.
"""

from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Final

from hermes.errors import RemoteProtocolError
from hermes.protocol.kafka_primitives import KafkaReader, encode_length, encode_text, varint
from hermes.protocol.wire import Buffer, encode_string
from hermes.transactions.state import NO_EPOCH, NO_ID, Place, State, Transaction

_VERSION: Final = Struct(">h")
_HEAD: Final = Struct(">qhib")
_TIMES: Final = Struct(">qq")
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")

_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_LAST_EPOCH = 1000


def encode_key(transactional_id: str) -> bytes:
    return _VERSION.pack(0) + encode_string(transactional_id)


def decode_key(key: Buffer | None) -> str | None:
    """The transactional id; None for a key of another kind, or that can't be read."""
    try:
        reader = KafkaReader(key or b"", 0, is_flexible=False)
        return reader.string() if reader.int16() == 0 else None
    except RemoteProtocolError:
        return None


def encode_value(transaction: Transaction) -> bytes:
    each = transaction
    return b"".join(
        (
            _VERSION.pack(1),
            _HEAD.pack(each.producer_id, each.epoch, each.timeout_ms, each.state),
            varint(0) if each.state is State.EMPTY else encode_places(each.places),
            _TIMES.pack(each.updated_ms, each.started_ms),
            _tags(each),
        )
    )


def decode_value(value: Buffer) -> Transaction:
    """Raises RemoteProtocolError for what can't be read."""
    version = KafkaReader(value, 0, is_flexible=False).int16()
    if version not in (0, 1):
        raise RemoteProtocolError(f"a transaction's record has version {version}")
    reader = KafkaReader(value, _VERSION.size, is_flexible=version > 0)
    producer_id, epoch, timeout_ms, state = reader.numbers(_HEAD)
    places = frozenset(_read_places(reader))
    updated_ms, started_ms = reader.numbers(_TIMES)
    try:
        known = State(state)
    except ValueError:
        raise RemoteProtocolError(f"a transaction's record has state {state}") from None
    found = Transaction(
        producer_id,
        epoch,
        timeout_ms,
        known,
        places,
        updated_ms=updated_ms,
        started_ms=started_ms,
    )
    return found if version == 0 else _with_tags(found, reader)


def encode_places(places: Collection[Place]) -> bytes:
    """Topics with their partitions, as records and requests about transactions have them."""
    topics = [
        (topic, [number for _, number in found])
        for topic, found in groupby(sorted(places), itemgetter(0))
    ]
    parts = [encode_length(len(topics), is_flexible=True)]
    for topic, numbers in topics:
        parts += (encode_text(topic, is_flexible=True), encode_length(len(numbers), True))
        parts += map(_INT32.pack, numbers)
        parts.append(b"\0")
    return b"".join(parts)


def _read_places(reader: KafkaReader) -> list[Place]:
    places = []
    for _ in range(reader.count(max(reader.length(), 0))):
        topic = reader.text()
        if topic is None:
            raise RemoteProtocolError("a transaction's record has a topic without a name")
        places += [(topic, reader.int32()) for _ in reader.each()]
        reader.tags()
    return places


def _tags(transaction: Transaction) -> bytes:
    tags = []
    if transaction.previous_id != NO_ID:
        tags.append((_PREVIOUS_ID, _INT64.pack(transaction.previous_id)))
    if transaction.next_id != NO_ID:
        tags.append((_NEXT_ID, _INT64.pack(transaction.next_id)))
    if transaction.version:
        tags.append((_CLIENT_VERSION, _VERSION.pack(transaction.version)))
    if transaction.last_epoch != NO_EPOCH:
        tags.append((_LAST_EPOCH, _VERSION.pack(transaction.last_epoch)))
    parts = [varint(len(tags))]
    for tag, data in tags:
        parts += (varint(tag), varint(len(data)), data)
    return b"".join(parts)


def _with_tags(found: Transaction, reader: KafkaReader) -> Transaction:
    for _ in range(reader.count(reader.varint())):
        tag = reader.varint()
        data = KafkaReader(reader.take(reader.varint()), 0, is_flexible=True)
        if tag == _PREVIOUS_ID:
            found = found._replace(previous_id=data.int64())
        elif tag == _NEXT_ID:
            found = found._replace(next_id=data.int64())
        elif tag == _CLIENT_VERSION:
            found = found._replace(version=data.int16())
        elif tag == _LAST_EPOCH:
            found = found._replace(last_epoch=data.int16())
    return found
