"""The source as it would be without Arrow: the same fetches, a tuple of Python objects per message.

That is what most sources written in Python do; Spark turns the tuples into columns itself.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from hermes.client import FetchRequest, SimpleConsumer
from hermes.spark import HermesDataSource
from hermes.spark.reading import FETCH_BYTES, ReadTask
from hermes.spark.source import HermesBatchReader

__all__ = ["TupleSource"]


class TupleSource(HermesDataSource):
    """`format("hermes-tuples")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "hermes-tuples"

    def reader(self, schema: StructType) -> HermesBatchReader:
        """As the source, but for what its tasks yield."""
        return TupleReader(self._checked("batch", schema))


class TupleReader(HermesBatchReader):
    """Plans like the source; reads with the client library's own loop."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a tuple for each message."""
        assert isinstance(partition, ReadTask)
        for each in partition.ranges:
            topic, broker_id, number = each.partition
            offset, end = each.start, each.end
            with SimpleConsumer(each.host, each.port) as consumer:
                while offset < end:
                    size = min(end - offset, FETCH_BYTES)
                    for message, next_offset in consumer.fetch(
                        FetchRequest(topic, number, offset, size)
                    ):
                        yield topic, broker_id, number, offset, next_offset, 0, message.payload
                        offset = next_offset
