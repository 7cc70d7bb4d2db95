"""The codecs of Kafka's record batches: records are compressed, and expanded within a limit.

Source of the formats: Kafka 4 (`org.apache.kafka.common.compress`), whose tolerance is matched.

    gzip     as in 0.7: one or more members
    snappy   as in 0.7: blocks after xerial's header, or a single raw block
    lz4      frames of LZ4's frame format; Kafka writes blocks that are independent of each
             other, and reads no others
    zstd     frames of Zstandard
"""

import mmap
from enum import IntEnum
from typing import Final

import cramjam

from hermes.errors import ExpandedTooLargeError, InvalidMessageError
from hermes.protocol.compression import Budget, Codec, compress, expand
from hermes.protocol.wire import Buffer


class RecordCodec(IntEnum):
    """The low three bits of a batch's attributes; 5 to 7 are not assigned and are refused."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# What a frame can expand to at most, per byte of its own: an LZ4 match grows by 255 for each
# further byte; a Zstandard block of 4 bytes repeats one byte 128 KiB long. No more is reserved.
_MOST_EXPANDED: Final = {RecordCodec.LZ4: 256, RecordCodec.ZSTD: 32 * 1024}
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_OUTPUT_IS_FULL: Final = "failed to write whole buffer"  # how cramjam says so
_ZSTD_LEVEL: Final = 3  # as Kafka's default


def compress_records(codec: RecordCodec, data: Buffer) -> bytes:
    """Compress the encoded records of a batch; NONE returns the data as it is."""
    if codec is RecordCodec.LZ4:
        # Java refuses blocks that refer to earlier ones. The batch has a CRC already.
        frame = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    if codec is RecordCodec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    return compress(Codec(codec), data)


def expand_records(codec: RecordCodec, data: Buffer, budget: Budget) -> Buffer:
    """Expand the records of a batch, and charge the budget for the result.

    NONE returns a view of the data, and charges nothing.

    Raises:
        InvalidMessageError: the data is not what the codec says. It carries no offset.
        ExpandedTooLargeError: it would expand beyond the budget; little more memory than that
            was used.
    """
    if codec is RecordCodec.NONE:
        return memoryview(data)
    if codec in _MOST_EXPANDED:
        return _expand_frames(codec, memoryview(data), budget)
    return expand(Codec(codec), data, budget)


def _expand_frames(codec: RecordCodec, data: memoryview, budget: Budget) -> bytes:
    """Expand frames whose size isn't known reliably."""
    # The output is memory that the system reserves but provides only as it is written, so that
    # neither a guess nor a second try is needed.
    library = cramjam.lz4 if codec is RecordCodec.LZ4 else cramjam.zstd
    most = min(budget.room, _MOST_EXPANDED[codec] * len(data))
    with mmap.mmap(-1, most + 1, flags=_PRIVATE) as output:
        try:
            expanded_bytes = library.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise InvalidMessageError(
                    f"records in {codec.name.lower()} can't be expanded: {error}"
                ) from error
            expanded_bytes = most + 1
        if expanded_bytes > most:
            raise ExpandedTooLargeError(
                f"{len(data)} bytes of records in {codec.name.lower()} expand to more than "
                f"{most} bytes"
            )
        budget.charge(expanded_bytes)
        return output[:expanded_bytes]
