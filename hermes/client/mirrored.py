"""Appending ranges of other clusters' partitions to a broker, each of them once.

What a mirror needs of a target broker: up to where its partitions have each source, where they have
it, and appends that the broker compares with that. A *source* is named by `source_name`. The
requests may be repeated at any time, and so may be on their way several at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from hermes.client.arguments import check_instance, check_partition, check_topic
from hermes.client.connection import BrokerConnection, Channel
from hermes.client.conversations import Conversation, Exchange, cluster_id, named
from hermes.client.translation import SourceMap
from hermes.errors import BrokerError, ClientError, ConfigError, RemoteProtocolError
from hermes.protocol import (
    ALL_PARTITIONS,
    MAX_MIRRORED_SETS,
    Acks,
    Buffer,
    ErrorCode,
    MirroredEntry,
    MirroredProduceRequest,
    MirroredSet,
    SourcePositionsRequest,
    SourcePositionsResponse,
    SourceSpan,
    decode_mirrored_produce_response,
    decode_source_positions_response,
    error_for,
)
from hermes.security import PLAIN, ClientSecurity

_R = TypeVar("_R")

# The part of the client's own timeout that the broker gets, as of a `SyncProducer`.
_BROKERS_SHARE: Final = 0.8


class PartitionSources(NamedTuple):
    """What a partition has of its sources; all of it is on disk.

    Attributes:
        end: where it ended at that moment; what follows is of no range that `positions` covers.
        positions: by source, up to which of its offsets it is here.
    """

    partition: int
    earliest: int
    end: int
    positions: dict[str, int]


class MirroredOutcome(NamedTuple):
    """What became of a set.

    Attributes:
        offset: where its first message is; None when nothing was appended.
        position: up to where the partition has the source now; -1 when it has nothing of it, or
            nobody knows.
        error: why it was refused; None when all of the range is there.
    """

    offset: int | None
    position: int
    error: BrokerError | None


def source_name(cluster_id: str, topic: str, broker_id: int, partition: int) -> str:
    """Name a source the way all mirrors do: `<cluster id>/<topic>/<broker id>-<partition>`."""
    return f"{cluster_id}/{topic}/{broker_id}-{partition}"


class PipelinedConnection(BrokerConnection):
    """A `BrokerConnection` that can send a request before the last one was answered.

    For requests that may be repeated, however late the first ones are carried out. Any failure
    costs the connection and whatever is on its way, of which nobody knows what has become.
    """

    in_flight = 0

    def begin(self, request: bytes) -> None:
        """Send a request, and don't wait; `finish` gets its answer."""
        with self._turn(None) as deadline:
            if self.in_flight:
                self._send_all(request, deadline)
            else:
                self._transmit(request, deadline)
            self.in_flight += 1

    def finish(self, decode: Callable[[memoryview], _R]) -> _R:
        """Wait for the answer to the oldest request in flight; ClientError if there is none."""
        if not self.in_flight:
            raise ClientError(f"no request to {self.address} waits for its answer")
        with self._turn(None) as deadline:
            answer, refused = self._receive(decode, deadline)
            self.in_flight -= 1
        if refused is not None:
            raise refused
        result: _R = answer
        return result

    def call(self, *args: Any, **options: Any) -> Any:
        """It takes no part in pipelining: ClientError if requests are in flight."""
        if self.in_flight:
            raise ClientError(f"{self.in_flight} requests to {self.address} wait for answers")
        return super().call(*args, **options)

    def _drop(self) -> None:
        self.in_flight = 0
        super()._drop()


class MirroredPartitions:
    """The partitions of one broker, for a mirror. For one thread, or several with a lock.

    Connects on first use, and again after failures. A failure of the connection loses what is in
    flight: ask for the positions again, and go on from there.

    Every method but `close` raises BrokerUnavailableError, BrokerTimeoutError and
    RemoteProtocolError, and UnsupportedRequestVersionError with a Kafka 0.7 or an older Hermes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._connection = PipelinedConnection(
            host,
            port,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            security=security,
        )
        self._channel = Channel(self._connection)
        self._in_flight: list[tuple[MirroredSet, ...]] = []

    @property
    def address(self) -> str:
        return self._connection.address

    def is_supported(self) -> bool:
        """Whether the broker knows these requests; asks it once."""
        return MirroredProduceRequest.TYPE in self._channel.versions()

    def cluster_id(self) -> str:
        """The UUID of the broker's cluster; empty while the broker doesn't know it yet."""
        return self._channel.ask(cluster_id)

    def positions(self, topic: str, partition: int | None = None) -> list[PartitionSources]:
        """Find out up to where partitions that were written to have each source.

        Raises:
            UnknownTopicError: there is no such topic (yet).
            WrongPartitionError: the topic has no such partition.
            StorageUnavailableError: the disk refused to take what isn't flushed; try again.
        """
        self._channel.require(SourcePositionsRequest.TYPE, "positions of sources")
        number = ALL_PARTITIONS if partition is None else partition
        return [
            PartitionSources(told.partition, told.earliest, told.end, told.by_name())
            for told in self._channel.run(source_positions(topic, number))
        ]

    def source_map(self, topic: str, partition: int) -> SourceMap:
        """Find out where a partition has its sources; raises as `positions` does."""
        self._channel.require(SourcePositionsRequest.TYPE, "positions of sources")
        return self._channel.run(source_map(topic, partition))

    def send(self, sets: Sequence[MirroredSet], acks: Acks = Acks.FLUSHED) -> list[MirroredOutcome]:
        """Append up to `MAX_MIRRORED_SETS` sets whose ranges aren't there yet, and wait for that.

        One that fails doesn't stop the next. Raises ClientError if others are in flight. Returns
        what became of each, in order.
        """
        if self._connection.in_flight:
            raise ClientError(f"{self.in_flight} requests to {self.address} wait for answers")
        self._channel.require(MirroredProduceRequest.TYPE, "a mirrored produce")
        self.begin(sets, acks)
        return self.finish()

    @property
    def in_flight(self) -> int:
        return self._connection.in_flight

    def begin(self, sets: Sequence[MirroredSet], acks: Acks = Acks.FLUSHED) -> None:
        """Send sets without waiting; `finish` tells what became of them. See `send`.

        The broker takes them in this order, but doesn't stop at one that fails: pass FOLLOWS with
        each set but the first of a source.
        """
        if not 1 <= len(sets) <= MAX_MIRRORED_SETS:
            raise ConfigError("sets", f"expected 1 to {MAX_MIRRORED_SETS}, got {len(sets)}")
        for each in sets:
            check_instance("sets", each, MirroredSet)
        timeout_ms = max(int(self._connection.timeout_seconds * 1000 * _BROKERS_SHARE), 1)
        request = MirroredProduceRequest(acks, timeout_ms, tuple(sets)).encode()
        if not self._connection.in_flight:
            self._in_flight.clear()  # of a connection that broke
        self._connection.begin(request)
        self._in_flight.append(tuple(sets))

    def finish(self) -> list[MirroredOutcome]:
        """Wait for the oldest request in flight; what became of its sets, in order.

        Raises:
            ClientError: none is.
            BrokerError: the request as a whole was refused.
        """
        if not self._connection.in_flight:
            self._in_flight.clear()
        sets = self._in_flight.pop(0) if self._in_flight else ()
        return self._connection.finish(partial(_decode_outcomes, sets))

    def disconnect(self) -> None:
        self._connection.disconnect()

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _decode_outcomes(sets: Sequence[MirroredSet], body: Buffer) -> list[MirroredOutcome]:
    entries = decode_mirrored_produce_response(body)
    if len(entries) != len(sets):
        raise RemoteProtocolError(f"{len(sets)} sets were answered with {len(entries)} entries")
    return [_outcome(each, entry) for each, entry in zip(sets, entries, strict=True)]


def _outcome(wanted: MirroredSet, entry: MirroredEntry) -> MirroredOutcome:
    offset = None if entry.offset < 0 else entry.offset
    if entry.error != ErrorCode.NONE:
        detail = f"{named(wanted.topic, wanted.partition)}, source {wanted.source!r}"
        return MirroredOutcome(None, entry.position, error_for(entry.error, detail))
    if entry.position < wanted.source_end:
        raise RemoteProtocolError(
            f"{named(wanted.topic, wanted.partition)} has {wanted.source!r} up to "
            f"{entry.position}, after it took it up to {wanted.source_end}"
        )
    return MirroredOutcome(offset, entry.position, None)


class _Told:
    def __init__(self, partition: int, earliest: int, end: int) -> None:
        self.partition, self.earliest, self.end = partition, earliest, end
        self.names: dict[int, str] = {}
        self.positions: dict[int, int] = {}

    def by_name(self) -> dict[str, int]:
        return {self.names[n]: position for n, position in self.positions.items() if position >= 0}


def source_positions(topic: str, partition: int) -> Conversation[list[_Told]]:
    """A response has some partitions; the next continues there."""
    _check_place(topic, partition)
    told: list[_Told] = []
    first = 0
    while first >= 0:
        answer = yield from _ask(topic, partition, False, first)
        for number, earliest, end, sources in answer.partitions:
            if not told or number > told[-1].partition:
                told.append(_Told(number, earliest, end))
            elif number < told[-1].partition:
                raise RemoteProtocolError(f"positions of topic {topic!r} go back to {number}")
            # The first end that was told: what was appended since isn't in all the positions.
            for source in sources:
                told[-1].names[source.number] = source.source
                told[-1].positions[source.number] = source.position
        first = answer.next
    return told


def source_map(topic: str, partition: int) -> Conversation[SourceMap]:
    told = yield from source_positions(topic, partition)
    if not told:
        return SourceMap(partition, 0, 0, {}, ())
    spans: list[SourceSpan] = []
    first = 0
    while first >= 0:
        answer = yield from _ask(topic, partition, True, first)
        spans += answer.spans
        first = answer.next
    (sources,) = told
    by_source: dict[str, list[SourceSpan]] = {name: [] for name in sources.by_name()}
    for span in spans:
        name = sources.names.get(span.number)
        if name in by_source:  # one that has come since isn't
            by_source[name].append(span)
    return SourceMap(partition, sources.earliest, sources.end, sources.by_name(), by_source.items())


def _ask(
    topic: str, partition: int, spans: bool, first: int
) -> Conversation[SourcePositionsResponse]:
    request = SourcePositionsRequest(topic, partition, spans, first).encode()
    detail = named(topic, partition)
    answer: SourcePositionsResponse = yield Exchange(
        request, partial(decode_source_positions_response, detail=detail)
    )
    if 0 <= answer.next <= first:
        raise RemoteProtocolError(f"positions of {detail} go on at {answer.next} after {first}")
    return answer


def _check_place(topic: str, partition: int) -> None:
    check_topic(topic)
    if partition != ALL_PARTITIONS:
        check_partition(topic, partition)
