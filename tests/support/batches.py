"""Record batches of other clients, and those that lie; and the requests that they come in."""

from struct import pack
from uuid import UUID

from hermes.protocol.kafka_primitives import encode_length, encode_text, encode_topic
from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec, compress_records
from hermes.protocol.wire import frame

__all__ = [
    "GZIP",
    "NOW_MS",
    "PLAIN",
    "fetch_body",
    "fetch_request",
    "holding",
    "plain_request",
    "resealed",
]

#: Two messages, plain: b"hello" with a key and a header, b"world" 7 ms later.
PLAIN = bytes.fromhex(
    "00000000000000000000004e0000000002635097570000000000010000019e704488000000019e70448807ffffffff"
    "ffffffffffffffffffff0000000220000000026b0a68656c6c6f020268027816000e02010a776f726c6400"
)
#: Three messages in gzip of the producer 4711 in its epoch 3, the first with the last sequence.
GZIP = bytes.fromhex(
    "0000000000000000000000590000000002c5a2e4980001000000020000019e704488000000019e7044880000000000"
    "0000126700037fffffff000000031f8b0800b93b036b02ff3361606060d448c402184c181899704a31b3e0900200a9"
    "0fede651000000"
)
NOW_MS = 1_780_000_000_000


def resealed(data: bytes, **changes: int) -> bytes:
    """A batch that says something else, with a CRC that fits."""
    return (
        with_crc(decode_header(data)._replace(**changes), data[HEADER_BYTES:]) + data[HEADER_BYTES:]
    )


def holding(
    body: bytes, count: int = 1, codec: RecordCodec = RecordCodec.NONE, **more: int
) -> bytes:
    """A batch of these bytes, which says that they are so many messages."""
    body = compress_records(codec, body)
    header = BatchHeader(
        0, HEADER_BYTES + len(body), -1, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count
    )
    return with_crc(header._replace(**more), body) + body


def plain_request(
    version: int,
    batch: bytes,
    *,
    topic: str | UUID = "new",
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 30_000,
    correlation_id: int = 7,
    client_id: str | None = "a test",
    transactional_id: str | None = None,
) -> bytes:
    """A Produce request of one batch, with its size."""
    is_flexible = version >= 9
    tags = b"\0" if is_flexible else b""
    return frame(
        pack(">hhi", 0, version, correlation_id),
        encode_text(client_id, False) + tags,
        encode_text(transactional_id, is_flexible),
        pack(">hi", acks, timeout_ms),
        encode_length(1, is_flexible),
        encode_topic(topic, is_flexible),
        encode_length(1, is_flexible),
        pack(">i", partition),
        encode_length(len(batch), is_flexible),
        batch,
        3 * tags,
    )


def fetch_body(version: int, *places: tuple[int, int, int], topic: str | UUID = "new") -> bytes:
    """The body of a plain Fetch request: of each partition the offset, and how many bytes."""
    is_flexible = version >= 12
    tags = b"\0" if is_flexible else b""
    parts = [b"" if version >= 15 else bytes(4), pack(">iiib", 500, 1, 1 << 20, 0)]
    parts += [pack(">ii", 0, -1) if version >= 7 else b"", encode_length(1, is_flexible)]
    parts += encode_topic(topic, is_flexible), encode_length(len(places), is_flexible)
    for partition, offset, max_bytes in places:
        epoch = pack(">i", 3) if version >= 9 else b""
        unused = bytes((4 if is_flexible else 0) + (8 if version >= 5 else 0))
        parts += pack(">i", partition), epoch, pack(">q", offset), unused
        parts += pack(">i", max_bytes), tags
    parts += tags, encode_length(0, is_flexible) if version >= 7 else b""
    parts += encode_text("rack", is_flexible) if version >= 11 else b"", tags
    return b"".join(parts)


def fetch_request(version: int, body: bytes) -> bytes:
    """A Fetch request, with its size, of which this is the body."""
    request = pack(">hhih", 1, version, 7, 1) + b"c" + (b"\0" if version >= 12 else b"") + body
    return pack(">i", len(request)) + request
