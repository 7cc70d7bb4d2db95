"""Reads partitions in order, up to an end, and skips damage when asked to.

A message starts where the one before it ended; inside a compressed set all have the set's offset.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

from hermes.cli.retrying import Retrying
from hermes.cli.terminal import note
from hermes.cli.topic_source import OffsetReader, TopicSource
from hermes.client import AppendTime, FetchRequest, FetchResult, Message
from hermes.errors import (
    ClientError,
    ExpandedTooLargeError,
    HermesError,
    InvalidMessageError,
    MessageLargerThanFetchError,
    OffsetOutOfRangeBrokerError,
)
from hermes.protocol import AppendTimesRequest, message_start

_FETCH_BYTES: Final = 1024 * 1024
_ROUND_BYTES: Final = 32 * 1024 * 1024
_LEAST_FETCH_BYTES: Final = 16 * 1024


class Chunk(NamedTuple):
    """Consecutive messages of one partition.

    Attributes:
        offset: where the first one starts.
        messages: one or more pairs of a message and the offset to continue from after it. Whether
            compressed ones are among them is the reader's choice.
        times: when they were appended, if that was asked for.
    """

    topic: str
    partition: int
    offset: int
    messages: list[tuple[Message, int]]
    times: Sequence[AppendTime] = ()


class PartitionReader:
    """How far one partition was read.

    Args:
        offset: where to begin: a message starts there.
        end: where to stop; None to read for ever.
        drop: how many messages to leave out first, to begin within a compressed set.
        skip_corrupt: whether damaged messages are skipped, with a note, or end the reading.
        deep: whether compressed messages are replaced by those inside.
        report: called with a line for each damaged place that is skipped.

    Attributes:
        offset: where to continue.
    """

    def __init__(
        self,
        source: TopicSource,
        partition: int,
        offset: int,
        *,
        end: int | None = None,
        drop: int = 0,
        skip_corrupt: bool = False,
        deep: bool = True,
        report: Callable[[str], None] = note,
    ) -> None:
        self._source = source
        self.partition = partition
        self.offset = offset
        self.skipped = 0
        self._end = end
        self._drop = drop
        self._skip_corrupt = skip_corrupt
        self._deep = deep
        self._report = report

    @property
    def is_done(self) -> bool:
        return self._end is not None and self.offset >= self._end

    def request(self, size_bytes: int) -> FetchRequest:
        return FetchRequest(self._source.topic, self.partition, self.offset, size_bytes)

    def take(self, result: FetchResult) -> Chunk:
        """Take what was fetched and move on; returns the wanted messages in it, maybe none.

        Raises ClientError: the partition can't be read any further; the text says where and why.
        """
        start = self.offset
        try:
            messages = self._messages_of(result)
        except InvalidMessageError as error:
            self._skip(error)
            return Chunk(self._source.topic, self.partition, start, [])
        except OffsetOutOfRangeBrokerError:
            self._refuse_out_of_range()
        except MessageLargerThanFetchError as error:
            raise ClientError(f"{error} (--max-fetch)") from None
        if not messages:
            self._notice_deletion(result)
        if self._end is not None and self.offset > self._end:
            messages = _before(messages, start, self._end)
        if self._drop and messages:
            dropped = messages[: self._drop]
            self._drop -= len(dropped)
            start, messages = dropped[-1][1], messages[len(dropped) :]
        return Chunk(self._source.topic, self.partition, start, messages)

    def _messages_of(self, result: FetchResult) -> list[tuple[Message, int]]:
        if result.error is not None:
            raise result.error
        messages: list[tuple[Message, int]] = []
        add = messages.append
        try:
            for pair in result.messages.iterate(deep=self._deep):
                add(pair)
        except InvalidMessageError as error:
            if error.offset is None or error.offset <= self.offset:
                raise
            # A fetch that begins at the bad one shows more of what follows it.
            self.offset = error.offset
            return messages
        self.offset = result.messages.next_offset
        return messages

    def _skip(self, error: InvalidMessageError) -> None:
        if isinstance(error, ExpandedTooLargeError):
            raise ClientError(f"{self._where}: {error} (--max-expanded)") from None
        following = error.next_offset
        if following is None:
            # Nothing valid up to the end of the segment, or of what may be fetched at once.
            following = self._source.next_segment(self.partition, self.offset)
        if following is None or not self._skip_corrupt:
            self._give_up(error, following)
        self._report(f"{self._where}: skipped damage from offset {self.offset} to {following}")
        self.skipped += 1
        self.offset = following

    def _give_up(self, error: InvalidMessageError, following: int | None) -> NoReturn:
        boundary = self._source.boundary_before(self.partition, self.offset)
        if boundary < self.offset:
            reason = f"it is within what starts at {boundary}"
        elif isinstance(error.__cause__, InvalidMessageError):
            reason = str(error.__cause__)
        else:
            reason = "its length is damaged"
        text = f"{self._where}: no good message starts at offset {self.offset}: {reason}"
        if following is not None:
            text += f"; the next one starts at {following}, where --skip-corrupt would continue"
        raise ClientError(text) from None

    def _refuse_out_of_range(self) -> NoReturn:
        available = self._source.ranges()[0][self.partition]
        raise self._source.out_of_range(self.partition, self.offset, available) from None

    def _notice_deletion(self, result: FetchResult) -> None:
        if result.high_watermark == -1 and self.offset > 0:
            raise ClientError(f"{self._where} was deleted while it was being read")

    @property
    def _where(self) -> str:
        return self._source.name_of(self.partition)


def read_partitions(
    consumer: OffsetReader,
    readers: Sequence[PartitionReader],
    max_wait_ms: int,
    retrying: Retrying | None = None,
) -> Iterator[Chunk]:
    """Read partitions side by side until all are done.

    Args:
        consumer: connected to the broker that has all of them.
        max_wait_ms: how long the broker may wait for new messages before it responds.
        retrying: waits for a broker that is unavailable; without it the first failure is raised.

    Yields:
        Messages as they come; those of one partition are in order, without gaps or repetitions
        even if the broker was unavailable.

    Raises:
        ClientError: a partition can't be read any further.
    """
    retrying = retrying or Retrying(0)
    while active := [reader for reader in readers if not reader.is_done]:
        try:
            yield from _one_round(consumer, active, max_wait_ms)
        except HermesError as error:
            retrying.failed(error)  # each reader continues where it stopped
        else:
            retrying.succeeded()


def _one_round(
    consumer: OffsetReader, active: Sequence[PartitionReader], max_wait_ms: int
) -> Iterator[Chunk]:
    size = max(min(_FETCH_BYTES, _ROUND_BYTES // len(active)), _LEAST_FETCH_BYTES)
    requests = [reader.request(size) for reader in active]
    results = consumer.fetch_waiting(requests, max_wait_ms)
    for reader, result in zip(active, results, strict=True):
        chunk = reader.take(result)
        if chunk.messages:
            yield chunk


def with_times(
    consumer: OffsetReader, chunks: Iterator[Chunk], retrying: Retrying
) -> Iterator[Chunk]:
    for chunk in chunks:
        yield chunk._replace(times=_times_of(consumer, chunk, retrying))


def _times_of(consumer: OffsetReader, chunk: Chunk, retrying: Retrying) -> Sequence[AppendTime]:
    # Messages within one compressed set begin and end at the same offset.
    end = max(chunk.messages[-1][1], chunk.offset + 1)
    while True:
        try:
            if not consumer.supports(AppendTimesRequest.TYPE):
                return ()
            times = consumer.append_times(chunk.topic, chunk.partition, chunk.offset, end)
        except OffsetOutOfRangeBrokerError:
            return ()  # retention was faster
        except HermesError as error:
            retrying.failed(error)
        else:
            retrying.succeeded()
            return times


def _before(messages: list[tuple[Message, int]], start: int, end: int) -> list[tuple[Message, int]]:
    for number, (message, following) in enumerate(messages):
        if message_start(message, start, following) >= end:
            return messages[:number]
        start = following
    return messages
