"""Requests of Kafka's clients as they come: their headers are read, and their bodies aren't yet.

v1   int16 key | int16 version | int32 correlation id | nullable string client id | body
v2   ... | tags | body
"""

import struct
from typing import Final, NamedTuple, TypeAlias

from hermes.errors import RemoteProtocolError
from hermes.kafka.apis import FETCH, PRODUCE
from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.wire import Buffer

_HEAD: Final = struct.Struct(">hhih")


class Frame:
    """One request, not decoded. Its header isn't, either, before `read_header`.

    Attributes:
        data: all of it; a view of what was received if it is large.
        client_id: empty where the client gives none.
        body: where the body begins; or the header's tags, in flexible versions.
    """

    __slots__ = ("body", "client_id", "correlation_id", "data", "key", "version")

    version: int
    correlation_id: int
    client_id: str
    body: int

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.key = int.from_bytes(data[:2], signed=True)

    def read_header(self) -> None:
        """Raises RemoteProtocolError where there is no valid header."""
        data = self.data
        try:
            _, self.version, self.correlation_id, length = _HEAD.unpack_from(data)
        except struct.error:
            raise RemoteProtocolError(
                f"a request of {len(data)} bytes is too short for a header"
            ) from None
        self.body = _HEAD.size + max(length, 0)
        if length < -1 or self.body > len(data):
            raise RemoteProtocolError(f"a request of {len(data)} bytes has no client id to its end")
        self.client_id = bytes(data[_HEAD.size : self.body]).decode(errors="replace")


#: What `core.plain_produce` finds.
PlainProduce: TypeAlias = tuple[int, int, int, int, int, str | bytes, int, bytes, int, BatchHeader]


class _SingleFetch(NamedTuple):
    """What `core.single_fetch` finds; `place` is how the response names the partition."""

    data: bytes
    version: int
    correlation_id: int
    wait_ms: int
    min_bytes: int
    max_bytes: int
    level: int
    topic: str | bytes
    number: int
    offset: int
    most_bytes: int
    epoch: int
    place: bytes


class PlainFetch(_SingleFetch):
    """A plain Fetch request for one partition, where `Frame`s are what others come as."""

    __slots__ = ()

    key = FETCH

    def read_header(self) -> None:
        """It is known."""


class ProduceFrame(Frame):
    """A Produce request: taken while those before it wait for their flush.

    `plain` says what it is; None where it has to be decoded.
    """

    __slots__ = ("plain",)

    def __init__(self, data: Buffer, plain: PlainProduce | None) -> None:
        self.data = data
        self.key = PRODUCE
        self.plain = plain


class ReadFrame(Frame):
    """A request other than Produce, with its header as `core.whole_request` finds it."""

    __slots__ = ()

    def __init__(self, data: Buffer, known: tuple[int, int, int, int, str, int]) -> None:
        self.data = data
        _, self.key, self.version, self.correlation_id, self.client_id, self.body = known


class ReplicaFrame(Frame):
    """A Fetch request of a broker that copies partitions: taken while those before it wait."""

    __slots__ = ()

    def read_header(self) -> None:
        """It is known."""
