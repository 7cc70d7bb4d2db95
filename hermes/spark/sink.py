"""`df.write.format("hermes")` and `df.writeStream.format("hermes")`: rows become messages.

At least once: a task is done when the brokers have acknowledged every message of its rows, and
fails otherwise. Spark then runs it again, and a stream repeats a batch that may or may not have
finished; messages that had arrived arrive a second time. A log takes nothing back, so what a failed
write has sent remains. `idColumn` lets readers recognize duplicates: see `hermes.spark.envelope`.

The writers are created beside the driver, checked there, and pickled into the tasks; so they hold
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
from hermes.config.addresses import BrokerAddress
from hermes.errors import ClientError, HermesError
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.options import RetryOptions
from hermes.spark.plain_errors import plain_errors
from hermes.spark.sink_options import SinkOptions
from hermes.spark.sink_rows import RowEncoder, TopicMessages

_log = logging.getLogger(__name__)

#: Where each broker of the list is, by id: (host, port). Empty when ZooKeeper knows.
Brokers: TypeAlias = dict[int, tuple[str, int]]

_Sending: TypeAlias = list[tuple[SendHandle, str, int]]

# The queue empties within the time that all attempts at all brokers take, or its batches fail; so
# waiting for room in it needs no limit of its own.
_QUEUE_PATIENCE: Final = "1d"

_CLOSING_SECONDS: Final = 0.2
_REQUEST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class SentMessages(WriterCommitMessage):
    messages: int


class _Writer:
    """What writers of batches and streams share; `ignored` columns have no meaning for a write."""

    def __init__(
        self, schema: StructType, options: SinkOptions, ignored: frozenset[str] = frozenset()
    ) -> None:
        self._rows = RowEncoder(schema, options, ignored)
        self._options = options

    def _failed(self, what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        sent = sum(each.messages for each in messages if isinstance(each, SentMessages))
        _log.warning("%s failed; %d messages of completed tasks remain in the topics", what, sent)


class HermesBatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame. Creating it checks all that can be checked before anything is sent."""

    def __init__(
        self, schema: StructType, options: SinkOptions, ignored: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(schema, options, ignored)
        self._brokers = find_brokers(options)

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        return send_rows(iterator, self._rows, self._options, self._brokers)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._failed("the write", messages)


class HermesStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream.

    Spark creates one writer to plan each batch and another to commit it. So the tasks look up the
    brokers, with retries: one that is briefly unavailable doesn't end the query.
    """

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        return send_rows(iterator, self._rows, self._options, find_brokers(self._options))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._failed(f"batch {batchId}", messages)


def find_brokers(options: SinkOptions) -> Brokers:
    """Learn the ids of the brokers of a list, which order a topic's partitions."""
    retries = RetryOptions(options.retries, options.retry_ms / 1000)
    with ClusterReader(options.address, retries) as cluster:
        brokers = cluster.brokers()
    return {} if options.address.zookeeper else brokers


def send_rows(
    batches: Iterable[pa.RecordBatch], rows: RowEncoder, options: SinkOptions, brokers: Brokers
) -> SentMessages:
    """Send rows, and wait for their acknowledgements. After an error some may have arrived."""
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
        # Spark's next attempt sends the rest; the producer's thread has a moment to end by itself.
        with suppress(HermesError):  # what made the task fail matters more
            producer.close(_CLOSING_SECONDS)
        raise
    producer.close()
    return SentMessages(count)


def producer_config(options: SinkOptions, brokers: Brokers) -> ProducerConfig:
    listed = (f"{number}:{BrokerAddress(*place)}" for number, place in brokers.items())
    return ProducerConfig(
        broker_list=",".join(listed),
        zookeeper_connect=options.address.zookeeper,
        zookeeper_tls=None if options.address.identity.zookeeper_tls else False,
        **options.address.identity.security().settings(),
        producer_type="async",
        acks=options.acks,
        # Here the number of attempts is the bound, each with the time that a request may take.
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


def _send(producer: Producer, outgoing: Iterable[TopicMessages]) -> _Sending:
    return [
        (producer.send(topic, messages, keys), topic, len(messages))
        for topic, messages, keys in outgoing
    ]


def _acknowledged(sending: _Sending) -> int:
    for handle, topic, count in sending:
        try:
            handle.result()
        except HermesError as error:
            raise ClientError(
                f"{count} messages for topic {topic!r} were not acknowledged: {error}"
            ) from error
    return sum(count for _, _, count in sending)
