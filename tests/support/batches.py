"""Record batches of other clients, and those that lie."""

from hermes.protocol.record_batches import HEADER_BYTES, BatchHeader, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec, compress_records

__all__ = ["GZIP", "NOW_MS", "PLAIN", "holding", "resealed"]

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
