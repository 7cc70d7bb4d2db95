"""Acknowledged produces as a conversation, and what becomes of each message set."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from hermes.client.conversations import Conversation, Exchange, named
from hermes.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    RemoteProtocolError,
)
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    ErrorCode,
    ProducedEntry,
    ProduceRequest,
    decode_acknowledged_produce_response,
    error_for,
)

__all__ = ["SendResult", "is_retriable", "produce_acknowledged"]

# The part of the client's own timeout that the broker gets, so that its answer "not flushed in
# time" arrives before the client gives up.
_BROKERS_SHARE: Final = 0.8


class SendResult(NamedTuple):
    """Where messages went.

    Attributes:
        topic: the topic.
        partition: the partition; -1 when the broker chose it and did not say.
        offset: the offset of the first message in the partition's log; None without
            acknowledgement. Messages of one compressed set share the offset of the set.
    """

    topic: str
    partition: int
    offset: int | None


def produce_acknowledged(
    produces: Sequence[ProduceRequest], acks: Acks, timeout_seconds: float
) -> Conversation[list[SendResult | BrokerError]]:
    """See `SyncProducer.send_acknowledged`."""
    timeout_ms = max(int(timeout_seconds * 1000 * _BROKERS_SHARE), 1)
    entries: list[ProducedEntry] = yield Exchange(
        AcknowledgedProduceRequest(acks, timeout_ms, tuple(produces)).encode(),
        partial(decode_acknowledged_produce_response, detail="acknowledged produce"),
        repeatable=False,
    )
    if len(entries) != len(produces):
        raise RemoteProtocolError(
            f"{len(produces)} message sets were answered with {len(entries)} entries"
        )
    return [_outcome(*each) for each in zip(produces, entries, strict=True)]


def _outcome(produce: ProduceRequest, entry: ProducedEntry) -> SendResult | BrokerError:
    if entry.error == ErrorCode.NONE:
        return SendResult(produce.topic, entry.partition, entry.offset)
    return error_for(entry.error, named(produce.topic, produce.partition))


def is_retriable(error: BaseException | None) -> bool:
    """Whether sending the same again may succeed."""
    if isinstance(error, BrokerError):
        return error.retriable
    return isinstance(error, BrokerUnavailableError | BrokerTimeoutError)
