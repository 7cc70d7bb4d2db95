"""`df.write.format("hermes")` and `df.writeStream.format("hermes")`: rows become messages.

At least once: a task is done when the brokers have acknowledged every message of its rows, and
fails otherwise. Spark then runs it again, and a stream repeats a batch of which it doesn't know
whether it was finished; what had arrived before arrives a second time. The log takes nothing back,
so a write that fails as a whole leaves behind what was sent. `idColumn` is for those who must tell:
see `hermes.spark.envelope`.

The writers are made beside the driver, checked there, and pickled into the tasks; so they hold
settings and nothing else.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from hermes.client import Producer, ProducerConfig, SendHandle
from hermes.errors import ClientError, HermesError
from hermes.spark.cluster import Cluster, Retries
from hermes.spark.outgoing import Outgoing, OutgoingRows
from hermes.spark.sink_options import SinkOptions

__all__ = [
    "BatchWriter",
    "Sent",
    "StreamWriter",
    "find_brokers",
    "producer_config",
    "send_rows",
]

_log = logging.getLogger(__name__)

#: Where each broker of the list is, by id: (host, port). Empty when ZooKeeper knows.
Brokers: TypeAlias = dict[int, tuple[str, int]]

_Sending: TypeAlias = list[tuple[SendHandle, str, int]]

# The queue empties within the time that all tries of all brokers take, or its batches fail; so
# whoever waits for room in it need not look at the clock as well.
_QUEUE_PATIENCE: Final = "1d"

_CLOSING_SECONDS: Final = 0.2
_REQUEST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """What a task tells the driver when it is done.

    Attributes:
        messages: how many it sent.
    """

    messages: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Making it checks all that can be checked before something is sent.

    Args:
        schema: the columns of the rows.
        options: where to, and how.

    Raises:
        ConfigError: the columns don't fit.
        BrokerUnavailableError, BrokerTimeoutError, CoordinationUnavailableError, RoutingError: the
            brokers can't be found.
    """

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._rows = OutgoingRows(schema, options)
        self._options = options
        self._brokers = find_brokers(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task; runs in a worker."""
        return send_rows(iterator, self._rows, self._options, self._brokers)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Hear that the write failed."""
        sent = sum(each.messages for each in messages if isinstance(each, Sent))
        _log.warning("the write failed; %d messages of tasks that were done stay behind", sent)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream.

    Spark makes a writer to plan each batch and another one to commit it. So the brokers are
    looked up by the tasks, which try again: one that is away just then ends no query.

    Args:
        schema: the columns of the rows.
        options: where to, and how.

    Raises:
        ConfigError: the columns don't fit.
    """

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._rows = OutgoingRows(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task; runs in a worker."""
        return send_rows(iterator, self._rows, self._options, find_brokers(self._options))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Hear that a batch failed."""
        sent = sum(each.messages for each in messages if isinstance(each, Sent))
        _log.warning(
            "batch %d failed; %d messages of tasks that were done stay behind", batchId, sent
        )


def find_brokers(options: SinkOptions) -> Brokers:
    """Learn the ids of the brokers of a list, which order a topic's partitions.

    Raises:
        HermesError: they can't be found, also after the retries.
    """
    retries = Retries(options.retries, options.retry_ms / 1000)
    with Cluster(options.address, retries) as cluster:
        brokers = cluster.brokers()
    return {} if options.address.zookeeper else brokers


def send_rows(
    batches: Iterable[pa.RecordBatch], rows: OutgoingRows, options: SinkOptions, brokers: Brokers
) -> Sent:
    """Send rows, and wait for their acknowledgements.

    Args:
        batches: the rows.
        rows: knows their columns.
        options: how.
        brokers: where to, as `find_brokers` found them.

    Returns:
        How many messages were sent: all of them.

    Raises:
        ClientError: some were not acknowledged; which ones arrived is not known.
        HermesError: rows can't be sent as they are; those of earlier batches may have been.
    """
    producer = Producer(producer_config(options, brokers))
    count = 0
    before: _Sending = []
    try:
        for batch in batches:
            # While one batch is on its way the next is prepared, and no more: memory is bounded.
            now = _send(producer, rows.of(batch))
            count += _acknowledged(before)
            before = now
        count += _acknowledged(before)
    except BaseException:
        # What is left comes with Spark's next attempt; the thread has a moment to end by itself.
        with suppress(HermesError):  # what made the task end matters more
            producer.close(_CLOSING_SECONDS)
        raise
    producer.close()
    return Sent(count)


def producer_config(options: SinkOptions, brokers: Brokers) -> ProducerConfig:
    """The settings of a task's producer."""
    listed = (f"{number}:{host}:{port}" for number, (host, port) in brokers.items())
    return ProducerConfig(
        broker_list=",".join(listed),
        zookeeper_connect=options.address.zookeeper,
        producer_type="async",
        acks=options.acks,
        # Here the number of tries is what bounds them, each with the time that a request may take.
        delivery_timeout=(options.retries + 1) * (_REQUEST_MS + 2 * options.retry_ms),
        timeout_seconds=_REQUEST_MS / 1000,
        num_retries=options.retries,
        retry_backoff=options.retry_ms,
        partitioner=options.partitioner,
        compression=options.compression,
        max_message_bytes=options.max_message_bytes,
        batch_size=options.batch_size,
        enqueue_timeout=_QUEUE_PATIENCE,
    )


def _send(producer: Producer, outgoing: Iterable[Outgoing]) -> _Sending:
    return [
        (producer.send(topic, messages, key), topic, len(messages))
        for topic, messages, key in outgoing
    ]


def _acknowledged(sending: _Sending) -> int:
    """Wait until all were acknowledged; how many messages they are."""
    for handle, topic, count in sending:
        try:
            handle.result()
        except HermesError as error:
            raise ClientError(
                f"{count} messages for topic {topic!r} were not acknowledged: {error}"
            ) from error
    return sum(count for _, _, count in sending)
