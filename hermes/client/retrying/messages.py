"""What the application's function gets: a message with its place, and which try it is."""

from typing import Any, NamedTuple, Self

from hermes.client.groups.streams import StreamMessage
from hermes.client.retrying.letters import Letter
from hermes.protocol.records import Headers


class RetryMessage(NamedTuple):
    """A message for the application, for the first time or again.

    Whichever try it is, its place is that where it was published: `topic`, `broker_id`,
    `partition` and `offset` identify it (but for those within one compressed message, which share
    an offset).

    Example:
        def charge(order: RetryMessage) -> None:
            if order.attempt > 1:
                log.info("once more, after: %s", order.reason)
            billing.charge(order.message)

    Attributes:
        message: the payload, decoded.
        attempt: which try this is, from 1.
        reason: why the last try failed; empty in the first.
        first_failed_ms: when the first try failed, in ms since 1970; None in the first.
        broker_id: None where a client of Kafka's found it failing, which doesn't know it.
        key, headers, timestamp_ms: a record's; None if it has none, as a message of 0.7's format.
    """

    message: Any
    topic: str
    partition: int
    offset: int
    broker_id: int | None
    attempt: int
    reason: str
    first_failed_ms: int | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @classmethod
    def first(cls, message: StreamMessage, value: Any) -> Self:
        """Make one of a message that hasn't failed yet, and its decoded payload."""
        _, topic, partition, offset, _, broker = message
        beside = message.key, message.headers, message.timestamp_ms
        return cls(value, topic, partition, offset, broker, 1, "", None, *beside)

    @classmethod
    def again(cls, letter: Letter, value: Any) -> Self:
        """Make one of a letter and the decoded payload of what has failed."""
        place = letter.topic, letter.partition, letter.offset, letter.broker
        tries = letter.attempts + 1, letter.reason, letter.first_failed_ms
        return cls(value, *place, *tries, letter.key, letter.headers, letter.timestamp_ms)
