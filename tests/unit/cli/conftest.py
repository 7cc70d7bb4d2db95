from functools import partial

import pytest
from click.testing import CliRunner
from storage_logs import write_segment

from hermes.cli import program
from hermes.client import FetchResult
from hermes.protocol import (
    EARLIEST,
    LATEST,
    BrokerMetadata,
    ErrorCode,
    MessageSet,
    PartitionMetadata,
    TopicMetadata,
    error_for,
)


@pytest.fixture
def run():
    """Runs `hermes` with arguments; the result has exit_code, stdout and stderr."""
    runner = CliRunner()

    def invoke(*arguments, **settings):
        return runner.invoke(program, [str(each) for each in arguments], **settings)

    return invoke


@pytest.fixture
def make_segment(tmp_path):
    """Writes a segment below the data directory; returns its path."""
    return partial(write_segment, tmp_path / "data")


class FakeConsumer:
    """A SimpleConsumer whose broker is a mapping of (topic, partition) to segments.

    With `hermes=False` it knows what a Kafka 0.7 knows. Everything is readable at once, an answer
    never crosses a segment, and a fetch at the end raises: nobody should wait there.
    """

    def __init__(self, logs, *, hermes=True, partition_count=1):
        self.logs = logs
        self.hermes = hermes
        self.partition_count = partition_count
        self.fetched_bytes = 0

    def supports(self, request_type):
        return self.hermes or request_type < 64

    def metadata(self, topics):
        described = []
        for topic in topics:
            partitions = tuple(
                PartitionMetadata(number, min(segments), self._end(segments), 0)
                for (name, number), segments in sorted(self.logs.items())
                if name == topic
            )
            error = 0 if partitions else ErrorCode.UNKNOWN_TOPIC
            described.append(TopicMetadata(topic, error, self.partition_count, partitions))
        return BrokerMetadata(1, "0", 1 << 20, 1 << 20, 1, (), tuple(described))

    def get_offsets_before(self, topic, partition, time, max_offsets=1):
        segments = self.logs.get((topic, partition), {0: b""})
        assert time in (EARLIEST, LATEST)
        found = [min(segments)] if time == EARLIEST else {self._end(segments), *segments}
        return sorted(found, reverse=True)[:max_offsets]

    def boundary_before(self, topic, partition, offset):
        assert self.hermes
        boundary = 0
        for base, data in sorted(self.logs[topic, partition].items()):
            position = 0
            while position < len(data) and base + position <= offset:
                boundary = base + position
                position += 4 + int.from_bytes(data[position : position + 4], "big")
        return boundary

    def multifetch(self, requests):
        return [self._result(request) for request in requests]

    def fetch_waiting(self, requests, max_wait_ms, min_bytes=1):
        return [self._result(request) for request in requests]

    def _result(self, request):
        nothing = MessageSet(b"", request.offset)
        if request.partition >= self.partition_count:
            return FetchResult(request, nothing, None, error_for(ErrorCode.WRONG_PARTITION))
        segments = self.logs.get((request.topic, request.partition))
        if segments is None:
            return FetchResult(request, nothing, -1 if self.hermes else None)
        end = self._end(segments)
        if not min(segments) <= request.offset <= end:
            return FetchResult(request, nothing, end, error_for(ErrorCode.OFFSET_OUT_OF_RANGE))
        assert request.offset < end or not request.max_size, "nothing is to be read there"
        base = max(base for base in segments if base <= request.offset)
        start = request.offset - base
        data = segments[base][start : start + request.max_size]
        self.fetched_bytes += len(data)
        return FetchResult(request, MessageSet(data, request.offset), end)

    @staticmethod
    def _end(segments):
        base = max(segments)
        return base + len(segments[base])


@pytest.fixture
def fake_consumer():
    """The class of consumers that read from memory."""
    return FakeConsumer
