"""What an application sends, and the payloads it becomes: encoded, checked, counted."""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, Final, NamedTuple, TypeAlias

from hermes.coordination.layout import BrokerPartition
from hermes.errors import ArgumentError, EncodingError, HermesError, MessageTooLargeError
from hermes.keywords import refuse_keywords
from hermes.protocol.records import Headers
from hermes.quoting import quoted

#: Headers as applications give them.
GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

_OPTIONS: Final = ("headers", "partition")
_INT64_END: Final = 1 << 63


class Keys(list[Any]):
    """A key for each message of a list, in their order; None for a message without one.

    They may go to several partitions. One send of thousands costs a fraction of thousands of sends.

    Example:
        producer.send("clicks", [b"first", b"second"], key=Keys(["user-7", "user-8"]))
    """

    __slots__ = ()


class InPartition(NamedTuple):
    """A key for messages whose partition is chosen already; what `send` makes of `partition`.

    Attributes:
        partition: its number; where several brokers have one of this number, a `BrokerPartition`.
        key: stored with the messages, where their topic keeps keys; None for none, `Keys` for one
            per message.
    """

    partition: int | BrokerPartition
    key: Any = None


class RoutedKey(NamedTuple):
    """A key that is stored, while another one chooses the partition.

    Attributes:
        chooses: goes to the partitioner.
        key: stored with the message, where its topic keeps keys; None for none.
    """

    chooses: Any
    key: Any = None


class ProducerData(NamedTuple):
    """What one call sends.

    Example:
        producer.send(ProducerData("clicks", [b"first", b"second"], key="user-7"))

    Attributes:
        topic: where to.
        messages: one value, or a list of values; all go to the same partition.
        key: chooses the partition; None for no key; `Keys` for one per message; `InPartition` for a
            certain partition.
    """

    topic: str
    messages: Any
    key: Any = None


def message_count(item: Any) -> int:
    messages = item.messages if isinstance(item, ProducerData) else item
    return len(messages) if type(messages) is list else 1


class RecordData(NamedTuple):
    """A value with headers and a timestamp; for topics of Kafka's format.

    Example:
        producer.send("orders", RecordData(b"payload", headers=(("source", b"shop"),)), key=b"7")

    Attributes:
        value: what the encoder takes; None for a tombstone, which compaction takes as "the key is
            gone".
        headers: pairs of a name and bytes, or None; names may repeat.
        timestamp_ms: ms since 1970; None for the time of sending.
    """

    value: Any
    headers: Headers = ()
    timestamp_ms: int | None = None


class Details(NamedTuple):
    """What the messages of one item have beside payloads; goes where its key would.

    Attributes:
        key: the item's key, or its `Keys`.
        records: the `RecordData` of each message that has one, without its value; else None.
            A tombstone's value is True.
    """

    key: Any
    records: Sequence[RecordData | None]


def check_messages(messages: Any) -> None:
    """Refuse a list without messages: nothing would be sent, so it could have no outcome."""
    if type(messages) is list and not messages:
        raise ArgumentError("messages: expected one at least, got an empty list")


def check_keys(messages: Any, keys: Keys) -> tuple[Any, Any]:
    """Refuse keys that are not one for each message; of a single one, it and its key."""
    if type(messages) is not list or len(messages) != len(keys):
        what = f"{len(messages)} messages" if type(messages) is list else "no list of messages"
        raise ArgumentError(f"key: expected one for each message, got {len(keys)} for {what}")
    return (messages[0], keys[0]) if len(keys) == 1 else (messages, Keys(keys))


def with_options(
    messages: Any, key: Any, headers: Any, partition: Any, unknown: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Fold what `send` takes by name into its messages and their key.

    The messages become `RecordData` if they have headers; the key an `InPartition`. Raises
    ArgumentError and EncodingError.
    """
    if unknown:
        raise refuse_keywords("send", ("topic", "messages", "key", *_OPTIONS), unknown)
    if partition is not None:
        key = InPartition(_checked_partition(partition), key)
    if not headers:
        return messages, key
    pairs = checked_headers(headers)
    if type(messages) is list:
        return [_with_headers(each, pairs) for each in messages], key
    return _with_headers(messages, pairs), key


def checked_headers(headers: Any) -> Headers:
    """Read headers: pairs of a name and bytes, or None; or a mapping. Raises EncodingError."""
    try:
        listed = headers.items() if isinstance(headers, Mapping) else headers
        pairs = tuple((name, value) for name, value in listed)
    except (TypeError, ValueError):
        raise EncodingError("headers: expected pairs of a name and bytes") from None
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise EncodingError(f"headers: expected pairs of a string and bytes, got {name!r}")
        encoded_text(name, "headers")
    return pairs


def encoded_text(text: str, what: str) -> bytes:
    """Encode as UTF-8; an EncodingError says of `what` that it has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodingError(f"{what}: {quoted(text)} can't be written as UTF-8") from None


def _with_headers(message: Any, headers: Headers) -> RecordData:
    if type(message) is not RecordData:
        return RecordData(message, headers)
    if message.headers:
        raise ArgumentError("headers: they are given twice, here and in a RecordData")
    return message._replace(headers=headers)


def _checked_partition(partition: Any) -> int | BrokerPartition:
    number = partition.partition if isinstance(partition, BrokerPartition) else partition
    if type(number) is not int or number < 0:
        raise ArgumentError(
            "partition: expected a number from 0 on, or a BrokerPartition; got "
            f"{quoted(partition)} ({type(partition).__name__})"
        )
    return partition  # type: ignore[no-any-return]


class Payloads:
    """Encodes what is sent, once for all of a producer's threads.

    `passes_bytes`: the encoder gives bytes back as they are and isn't asked: by far the usual case.
    """

    def __init__(self, encoder: Any, max_message_bytes: int, *, passes_bytes: bool) -> None:
        self._encode = encoder.encode
        self._name = type(encoder).__name__
        self._passes_bytes = passes_bytes
        self._max_message_bytes = max_message_bytes

    def of(self, topic: str, messages: Any, key: Any) -> tuple[bytes | list[bytes], Any, int, int]:
        """Encode one value, or a list of values.

        Returns:
            The payload, or a new list of two payloads or more; the key, or `Details` with it; how
            many messages; how many bytes.

        Raises:
            ArgumentError, EncodingError, MessageTooLargeError: it can't be sent.
        """
        if type(messages) is not list:
            payload = messages
            if type(messages) is RecordData:
                key = Details(key, (_without_value(messages),))
                payload = self._value_of(topic, messages)
            elif not (self._passes_bytes and type(messages) is bytes):
                payload = self._encoded(topic, messages)
            size_bytes = len(payload)
            if size_bytes > self._max_message_bytes:
                raise MessageTooLargeError(size_bytes, self._max_message_bytes)
            return payload, key, 1, size_bytes
        check_messages(messages)
        if self._passes_bytes and set(map(type, messages)) <= {bytes}:
            payloads = messages.copy()  # the caller may continue to use its own
        elif RecordData in map(type, messages):
            key = Details(key, [_without_value(each) for each in messages])
            payloads = [self._value_of(topic, each) for each in messages]
        else:
            payloads = [self._encoded(topic, each) for each in messages]
        sizes = list(map(len, payloads))
        if max(sizes, default=0) > self._max_message_bytes:
            raise MessageTooLargeError(max(sizes), self._max_message_bytes)
        return payloads if len(payloads) > 1 else payloads[0], key, len(payloads), sum(sizes)

    def check_sizes(self, payloads: bytes | list[bytes]) -> None:
        """Refuse what a handler made too large after it was encoded."""
        largest = len(payloads) if isinstance(payloads, bytes) else max(map(len, payloads))
        if largest > self._max_message_bytes:
            raise MessageTooLargeError(largest, self._max_message_bytes)

    def _value_of(self, topic: str, message: Any) -> bytes:
        """The payload of a value that may be in a `RecordData`; empty for a tombstone."""
        if type(message) is not RecordData:
            return self._encoded(topic, message)
        return b"" if message.value is None else self._encoded(topic, message.value)

    def _encoded(self, topic: str, value: Any) -> bytes:
        try:
            payload = self._encode(topic, value)
        except HermesError:
            raise
        except Exception as error:
            raise EncodingError(
                f"{self._name} failed on a {type(value).__name__}: {type(error).__name__}: {error}"
            ) from error
        if type(payload) is not bytes:
            raise EncodingError(f"{self._name} made a {type(payload).__name__} instead of bytes")
        return payload


def _without_value(message: Any) -> RecordData | None:
    """What a message has beside its value, checked: later, others leave with it."""
    if type(message) is not RecordData:
        return None
    _, headers, time_ms = message
    if time_ms is not None:
        try:
            time_ms = index(time_ms)
        except TypeError:
            time_ms = _INT64_END
        if not -_INT64_END <= time_ms < _INT64_END:
            given = quoted(repr(message.timestamp_ms))
            raise EncodingError(f"timestamp_ms: expected whole ms since 1970, got {given}")
    return RecordData(message.value is None, checked_headers(headers), time_ms)
