"""Every zope interface of Hermes: what a plugin must provide, and under which rules it is called.

A plugin package imports this module, `hermes.errors` and the values of `hermes.protocol`, and
nothing else of Hermes. It is found through its entry points; docs/plugins.md shows a whole one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zope.interface import Interface

__all__ = [
    "ICallbackHandler",
    "IDecoder",
    "IEncoder",
    "IEventHandler",
    "IPartitioner",
    "IRetentionPolicy",
    "RetentionSettings",
    "SegmentInfo",
]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What a retention policy may know of one segment of a partition's log.

    Attributes:
        base_offset: the offset of the segment's first byte in the partition's log.
        size_bytes: the size of the segment's file.
        last_append_ms: when the last message was appended, in ms since 1970: from the log's own
            time index where there is one, else the modification time of the file.
        active: True for the last segment only, the one that is appended to.
    """

    base_offset: int
    size_bytes: int
    last_append_ms: int
    active: bool


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What broker.yaml says about one topic's retention, handed to the policy's factory.

    Attributes:
        time_ms: keep what was appended within this many ms; None for no limit.
        size_bytes: keep at least this many of the newest bytes; None for no limit.
        options: the topic's `retention_options`, free for third-party policies.
    """

    time_ms: int | None = None
    size_bytes: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class IRetentionPolicy(Interface):
    """Decides which segments at the start of a partition's log may be deleted.

    Entry point group: `hermes.retention`. The entry names a factory that is called with one
    `RetentionSettings` and returns an object that provides this interface. It is called in a
    worker thread, for one partition at a time, and must neither block nor touch files.
    """

    def expired(segments: Any, now_ms: int) -> int:
        """Say how many segments, counted from the oldest, may be deleted.

        Args:
            segments: a non-empty tuple of `SegmentInfo`, oldest first; the last one is active.
            now_ms: the broker's clock, in ms since 1970.

        Returns:
            0 to len(segments). Deleting only a leading run keeps the log without holes. When the
            active segment is included, an empty one named by the end offset takes its place.
        """


class IPartitioner(Interface):
    """Chooses the partition of what a producer sends.

    Entry point group: `hermes.partitioners`. The entry names a factory that is called with the
    producer's `partitioner_options` as keyword arguments. One object serves one producer; threads
    call it at the same time and it must not block.
    """

    def partition(topic: str, key: Any, partition_count: int) -> int:
        """Choose a partition.

        Args:
            topic: where the messages go.
            key: what the application gave with them; None for messages without a key.
            partition_count: how many partitions the topic has over all brokers, 1 or more.

        Returns:
            0 to partition_count - 1; the producer refuses to send anything else.

        Raises:
            LocalProtocolError: this kind of key can't be used; the text says which can.
        """


class IEncoder(Interface):
    """Turns what the application sends into a message's payload.

    Entry point group: `hermes.encoders`, whose objects may provide `IDecoder` as well. The entry
    names a factory that is called with the producer's `encoder_options` as keyword arguments.
    Threads call one object at the same time.
    """

    def encode(topic: str, value: Any) -> bytes:
        """Encode one value.

        Args:
            topic: where the message goes; some encodings depend on it.
            value: what the application sent; not to be changed.

        Returns:
            The payload.

        Raises:
            EncodingError: the value can't be encoded; the text names its type and what was
                expected. Other exceptions are wrapped into this one by the producer.
        """


class IDecoder(Interface):
    """Turns a message's payload back into a value: what `IEncoder` does, the other way round.

    Entry point group: `hermes.encoders`, as an encoder and its decoder are one plugin.
    """

    def decode(topic: str, payload: bytes) -> Any:
        """Decode one payload.

        Args:
            topic: where the message came from.
            payload: the message's payload.

        Returns:
            The value, equal to the one that was encoded.

        Raises:
            EncodingError: the payload is no encoding of this kind.
        """


class ICallbackHandler(Interface):
    """Watches, and may change, what passes through an asynchronous producer.

    Entry point group: `hermes.callback_handlers`. The entry names a factory that is called with
    the producer's `callback_handler_options` as keyword arguments. `before_enqueue` and
    `after_enqueue` run in the application's threads, all others in the producer's sender thread;
    a slow hook slows what it stands in. An exception from a hook is logged and counted; it costs
    neither messages nor the sender.

    Items are `hermes.client.ProducerData`; a batch is a sequence of them.
    """

    def before_enqueue(item: Any) -> Any:
        """Return the item to put into the queue: this one, another one, or None to drop it."""

    def after_enqueue(item: Any, accepted: bool) -> None:
        """Hear whether the queue took the item; not accepted means that it was full."""

    def after_dequeue(batch: Any) -> Any:
        """Return the items to go on with, in order: the batch itself, or a list of items.

        What stands in an item's place tells its handle the outcome: put None there to take it out
        (its handle fails, and it counts as dropped), or another item to send that instead. An item
        of the batch itself keeps its handle wherever it stands in the list; other items beyond the
        batch's length are sent, counted and told to `after_send` and `on_failure`, and have no
        handle.
        """

    def before_send(batch: Any) -> None:
        """Hear that the batch goes to its event handler now."""

    def after_send(batch: Any, results: Any) -> None:
        """Hear that the batch was sent; results hold a `SendResult` per item."""

    def on_failure(batch: Any, error: Any) -> None:
        """Hear that these items failed for good, and with which exception."""

    def on_close() -> None:
        """Hear that the producer closes; nothing is called after this."""


class IEventHandler(Interface):
    """Replaces what a producer does with a batch: encode, partition and send.

    Entry point group: `hermes.event_handlers`. The entry names a factory that is called with the
    producer's `event_handler_options` as keyword arguments. One thread at a time calls it.
    """

    def handle(batch: Any, default: Any) -> Any:
        """Deal with a batch.

        Args:
            batch: a non-empty sequence of `hermes.client.ProducerData`.
            default: the built-in treatment, a callable of one batch with the same results; call
                it with what is left to send, or not at all.

        Returns:
            A `SendResult` or an exception per item of the batch, in order.

        Raises:
            Exception: the whole batch failed; its items are reported as failed with it.
        """

    def close() -> None:
        """Release what the handler holds; no call follows."""
