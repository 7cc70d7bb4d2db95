"""The producer that knows one broker and sends what it is given, at once: no queue, no routing."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from hermes.client import conversations
from hermes.client.arguments import check_instance, check_partition
from hermes.client.connection import BrokerConnection, Channel
from hermes.client.conversations import Conversation, Exchange, Refused, named
from hermes.errors import (
    BrokerError,
    RemoteProtocolError,
)
from hermes.keywords import explains_keywords
from hermes.protocol import (
    RANDOM_PARTITION,
    AcknowledgedProduceRequest,
    Acks,
    Buffer,
    ErrorCode,
    MultiProduceRequest,
    ProducedEntry,
    ProduceRequest,
    RecordProduceRequest,
    decode_acknowledged_produce_response,
    error_for,
)
from hermes.security import ClientSecurity

# The part of the client's own timeout that the broker gets, so that its answer "not flushed in
# time" arrives before the client gives up.
_BROKERS_SHARE: Final = 0.8


class SendResult(NamedTuple):
    """Where messages went.

    Attributes:
        partition: the partition; -1 when the broker chose it and did not report it.
        offset: the offset of the first message in the partition's log; None without
            acknowledgement. Messages of one compressed set share the offset of the set.
    """

    topic: str
    partition: int
    offset: int | None


@explains_keywords
class SyncProducer:
    """Sends message sets to partitions of one broker: Hermes or Kafka 0.7.

        with SyncProducer("localhost:9092") as producer:
            messages = encode_message_set([b"first", b"second"])
            producer.send("clicks", 0, messages)
            producer.barrier()

    Connects on first use, again after failures; never resends on its own. Threads may share it.

    Every method raises, besides what it documents: BrokerUnavailableError and BrokerTimeoutError
    (what was sent may or may not be stored), RemoteProtocolError (a malformed response).

    Args:
        host: the broker's name or address, or both as in `localhost:9092`.
        port: its port; None for the one in `host`, or else 9092.
        timeout_seconds: the longest that one request may take, above 0.
        connect_timeout_seconds: the longest that connecting may take, above 0.
        hold_off_seconds: for how long calls fail at once after it took longer, 0 or more.
        supports_hermes_requests: whether the broker answers Hermes' own requests; None finds out
            when it first matters.
        tls: see `ClientSecurity` for this and the others.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        hold_off_seconds: float = 0.0,
        supports_hermes_requests: bool | None = None,
        tls: bool | None = None,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        connection = BrokerConnection(
            host,
            port,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            hold_off_seconds=hold_off_seconds,
            security=ClientSecurity(
                tls=tls,
                tls_ca=tls_ca,
                tls_certificate=tls_certificate,
                tls_key=tls_key,
                user=user,
                password=password,
            ),
        )
        self._channel = Channel(connection, supports_hermes_requests=supports_hermes_requests)

    @property
    def address(self) -> str:
        return self._channel.connection.address

    @property
    def channel(self) -> Channel:
        return self._channel

    def send(self, topic: str, partition: int, message_set: Buffer) -> None:
        """Send a message set without acknowledgement, as Kafka 0.7's clients do.

        A topic that is new gets 0.7's format by it, as by them.

        Args:
            partition: its number, or -1 to let the broker choose one at random.
            message_set: encoded messages, see `encode_message_set`.

        Raises:
            BrokerUnavailableError: as above. The broker closes the connection on a set that it
                refuses; that may show only with the next request.
        """
        request = ProduceRequest(topic, partition, message_set)
        _check([request])
        self._channel.connection.send(request.encode())

    def multi_send(self, produces: Sequence[ProduceRequest]) -> None:
        """Send up to 32,767 message sets in one request, without acknowledgement.

        The broker stops at the first that it refuses.
        """
        _check(produces)
        self._channel.connection.send(MultiProduceRequest(tuple(produces)).encode())

    def can_acknowledge(self) -> bool:
        """Whether the broker answers produces; one of Kafka 0.7 doesn't. Asks it once."""
        return AcknowledgedProduceRequest.TYPE in self._channel.versions()

    def send_acknowledged(
        self,
        produces: Sequence[ProduceRequest],
        acks: Acks = Acks.WRITTEN,
        *,
        timeout_seconds: float | None = None,
    ) -> list[SendResult | BrokerError]:
        """Send message sets and wait until each is written, or flushed to disk.

        Args:
            produces: up to 32,767; one that fails doesn't stop the next.
            acks: WRITTEN or FLUSHED.
            timeout_seconds: the longest that it may take, above 0; None for the producer's own.

        Returns:
            In the order of the produces: where each went, or its error. A `retriable` error
            allows another attempt.

        Raises:
            UnsupportedRequestVersionError: it is a broker of Kafka 0.7: use `send`.
            BrokerError: the request as a whole was refused.
        """
        self._channel.require(AcknowledgedProduceRequest.TYPE, "an acknowledgement")
        return self._send(AcknowledgedProduceRequest, produces, acks, timeout_seconds)

    def send_records(
        self,
        produces: Sequence[ProduceRequest],
        acks: Acks = Acks.WRITTEN,
        *,
        timeout_seconds: float | None = None,
    ) -> list[SendResult | BrokerError]:
        """Send record batches to topics of Kafka's format; see `send_acknowledged`.

        Args:
            produces: up to 1,024; each one's set is record batches.

        Raises:
            UnsupportedRequestVersionError: the broker knows no record batches.
            BrokerError: the request as a whole was refused.
        """
        self._channel.require(RecordProduceRequest.TYPE, "record batches")
        return self._send(RecordProduceRequest, produces, acks, timeout_seconds)

    def _send(
        self,
        kind: type[AcknowledgedProduceRequest],
        produces: Sequence[ProduceRequest],
        acks: Acks,
        timeout_seconds: float | None,
    ) -> list[SendResult | BrokerError]:
        _check(produces)
        timeout = timeout_seconds or self._channel.connection.timeout_seconds
        conversation = _produce(kind, produces, acks, timeout, self._channel.refused)
        return self._channel.run(conversation, timeout_seconds=timeout)

    def barrier(self) -> None:
        """Return once the broker has processed everything sent so far.

        Raises:
            BrokerUnavailableError: it closed the connection; unacknowledged sends may be lost.
        """
        self._channel.run(conversations.barrier())

    def close(self) -> None:
        """Close the connection. Idempotent.

        Unacknowledged sends that the broker has not read yet may be lost: call `barrier` first.
        """
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _produce(
    kind: type[AcknowledgedProduceRequest],
    produces: Sequence[ProduceRequest],
    acks: Acks,
    timeout_seconds: float,
    refused: Refused,
) -> Conversation[list[SendResult | BrokerError]]:
    timeout_ms = max(int(timeout_seconds * 1000 * _BROKERS_SHARE), 1)
    entries: list[ProducedEntry] = yield Exchange(
        kind(acks, timeout_ms, tuple(produces)).encode(),
        partial(_decode, produces),
        repeatable=False,
        changes=True,
    )
    return [
        _outcome(produce, entry, refused) for produce, entry in zip(produces, entries, strict=True)
    ]


def _check(produces: Sequence[ProduceRequest]) -> None:
    if type(produces) is not list:  # what it nearly always is, and cheaper to check
        check_instance("produces", produces, Sequence, "give a list, also of one")
    for each in produces:
        check_instance("produces", each, ProduceRequest)
        check_partition(each.topic, each.partition)
        if not isinstance(each.message_set, bytes | bytearray | memoryview):
            check_instance("message_set", each.message_set, bytes, "see encode_message_set")


def _decode(produces: Sequence[ProduceRequest], body: Buffer) -> list[ProducedEntry]:
    """Decode an answer; one that can't be true of the request is a fault of the peer."""
    entries = decode_acknowledged_produce_response(body, detail="acknowledged produce")
    if len(entries) != len(produces):
        raise RemoteProtocolError(
            f"{len(produces)} message sets were answered with {len(entries)} entries"
        )
    for produce, entry in zip(produces, entries, strict=True):
        is_there = entry.partition >= 0 and produce.partition in (RANDOM_PARTITION, entry.partition)
        if entry.error == ErrorCode.NONE and not (is_there and entry.offset >= 0):
            raise RemoteProtocolError(
                f"{named(produce.topic, produce.partition)} was acknowledged at offset "
                f"{entry.offset} of partition {entry.partition}"
            )
    return entries


def _outcome(
    produce: ProduceRequest, entry: ProducedEntry, refused: Refused
) -> SendResult | BrokerError:
    if entry.error == ErrorCode.NONE:
        return SendResult(produce.topic, entry.partition, entry.offset)
    error = error_for(entry.error, named(produce.topic, produce.partition), entry.reason)
    return refused.explain_code(error)
