"""Which partition of the target gets what, and the ranges that it is sent with.

What goes where follows from the message, its offset and the number of partitions alone, so that a
mirror that starts again sends everything where it was sent before. Each partition of the target is
told of a partition of the source in ranges without holes: what belongs elsewhere, or is damaged, is
part of a range as well. So neither side can lose anything without noticing.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

from hermes.config.mirror import Partitioning
from hermes.coordination.layout import BrokerPartition
from hermes.errors import LocalProtocolError
from hermes.interfaces import IPartitioner
from hermes.mirror.stretches import Stretch, boundaries, whole_until
from hermes.plugins.discovery import load_plugin
from hermes.protocol import Buffer, Codec, Message, MessageSet, encode_message_set
from hermes.protocol.messages import decode_message

#: Under `random`, how much goes to one partition before another is chosen.
CHUNK_BYTES: Final = 1 << 20

_PARTITIONER: Final = "java-hash"


class TargetPart(NamedTuple):
    """What one partition of the target gets.

    Attributes:
        target: which, by its place among the partitions of the topic.
        begin, end: up to where the partition knew the source, and up to where it will.
        data: whole messages; empty when none of the range belong there.
        messages: how many; compressed ones count once.
        is_verbatim: whether the data are the source's bytes from begin to end.
    """

    target: int
    begin: int
    end: int
    data: Buffer
    messages: int
    is_verbatim: bool


class PartitionRoute(Protocol):
    """Divides what comes from one partition of the source.

    `is_single`: whether all of it goes to one partition of the target at a time.
    """

    is_single: bool

    def parts(self, stretch: Stretch, reached: list[int]) -> Iterator[TargetPart]:
        """Divide a stretch of intact messages.

        `reached`: for each partition of the target, up to where it knows the source; what is below
        is there already. Moved on here.
        """

    def home(self, count: int) -> int:
        """The partition, among so many, that records ranges without messages."""


class IndexRoute:
    """All of a partition goes to one: that of the same place among those of its topic."""

    is_single = True

    def __init__(self, index: int) -> None:
        self._index = index

    def parts(self, stretch: Stretch, reached: list[int]) -> Iterator[TargetPart]:
        yield from _verbatim(self.home(len(reached)), stretch.begin, stretch, reached)

    def home(self, count: int) -> int:
        return self._index % count


class RandomRoute:
    """A MiB of a partition goes to one, the next to another, by a hash of where it is."""

    is_single = False

    def __init__(self, source: str) -> None:
        self._source = source

    def parts(self, stretch: Stretch, reached: list[int]) -> Iterator[TargetPart]:
        begin, data = stretch.begin, stretch.data
        while begin < stretch.end:
            chunk = begin // CHUNK_BYTES
            size = whole_until(data, min((chunk + 1) * CHUNK_BYTES - begin, len(data)))
            target = crc32(f"{self._source} {chunk}".encode()) % len(reached)
            count = sum(1 for _ in boundaries(data[:size]))
            piece = Stretch(begin, begin + size, data[:size], count)
            yield from _verbatim(target, begin, piece, reached)
            begin, data = begin + size, data[size:]

    def home(self, count: int) -> int:
        return 0


class KeyRoute:
    """Each message goes by the hash of its key, as Java's producers do it.

    A compressed message is opened; if its messages belong to several partitions, each of those gets
    its own, compressed again. What has no key is chosen for by its offset.

    `key_of`: finds the key in a payload; None without one.
    """

    is_single = False

    def __init__(self, key_of: Callable[[bytes], Any]) -> None:
        self._key_of = key_of
        self._partition = load_plugin("hermes.partitioners", _PARTITIONER, IPartitioner).partition

    def parts(self, stretch: Stretch, reached: list[int]) -> Iterator[TargetPart]:
        collected: dict[int, list[bytes]] = {}
        for start, end in boundaries(stretch.data):
            offset = stretch.begin + start
            message = decode_message(bytes(stretch.data[start:end]), 0, end - start)
            for target, encoded in self._divided(message, offset, len(reached)):
                if offset >= reached[target]:
                    collected.setdefault(target, []).append(encoded)
        for target, messages in sorted(collected.items()):
            data = b"".join(messages)
            begin, reached[target] = reached[target], stretch.end
            is_verbatim = len(data) == stretch.end - begin
            yield TargetPart(target, begin, stretch.end, data, len(messages), is_verbatim)

    def home(self, count: int) -> int:
        return 0

    def _divided(self, message: Message, offset: int, count: int) -> Iterator[tuple[int, bytes]]:
        if message.codec is Codec.NONE:
            yield self._target(message.payload, offset, count), message.encode()
            return
        inner: dict[int, list[Message]] = {}
        for each, _ in MessageSet(message.encode()):
            inner.setdefault(self._target(each.payload, offset, count), []).append(each)
        if len(inner) == 1:
            yield next(iter(inner)), message.encode()
            return
        for target, messages in inner.items():
            yield target, encode_message_set([each.payload for each in messages], message.codec)

    def _target(self, payload: bytes, offset: int, count: int) -> int:
        key = self._key_of(payload)
        if key is None:
            return offset % count
        try:
            target: int = self._partition("", key, count)
        except LocalProtocolError:  # a list, a number of more than 64 bits
            target = self._partition("", str(key), count)
        return target


@dataclass(slots=True, eq=False)
class RoutingPlan:
    """How a claim's messages get to the target.

    Attributes:
        source: what the target calls the partition of the source; empty where it keeps no
            positions.
        reached: for each of them, up to where it knows the source.
    """

    source: str
    topic: str
    targets: tuple[BrokerPartition, ...]
    route: PartitionRoute
    reached: list[int]

    @property
    def is_exact(self) -> bool:
        """Whether the target knows what it has, so that nothing is stored twice."""
        return bool(self.source)


def make_route(rule: Partitioning, index: int, source: str) -> PartitionRoute:
    if rule.rule == "index":
        return IndexRoute(index)
    if rule.rule == "random":
        return RandomRoute(source)
    if rule.key == "bytes":
        part = slice(*rule.where)
        return KeyRoute(lambda payload: payload[part] or None)
    return KeyRoute(_JsonKey(rule.where))


class _JsonKey:
    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def __call__(self, payload: bytes) -> Any:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            return None
        for name in self._path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


def _verbatim(
    target: int, begin: int, stretch: Stretch, reached: list[int]
) -> Iterator[TargetPart]:
    """A range of the source's own bytes, without what is there already."""
    there = reached[target]
    if there >= stretch.end:
        return
    data, count = stretch.data, stretch.messages
    if there > begin:
        data, begin = data[there - begin :], there
        count = sum(1 for _ in boundaries(data))
    elif there < begin:  # what lies between belongs to others
        yield TargetPart(target, there, begin, b"", 0, False)
    reached[target] = stretch.end
    yield TargetPart(target, begin, stretch.end, data, count, stretch.is_verbatim)
