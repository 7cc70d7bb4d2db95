"""The five bytes before each value whose schema a registry has.

    0  int8   0, the framing's version ("magic byte")
    1  int32  the schema's id, big-endian
    5  ...    the value

Confluent's serializers write the same.
"""

import struct
from typing import Final

from hermes.errors import EncodingError

_FRAME: Final = struct.Struct(">bi")

#: Where the value begins.
HEADER_BYTES: Final = _FRAME.size

#: The largest id that the framing holds.
MAX_ID: Final = 2**31 - 1


def header(schema_id: int) -> bytes:
    """The bytes before a value; the id is 0 to `MAX_ID`."""
    return _FRAME.pack(0, schema_id)


def schema_id_of(payload: bytes) -> int:
    """Read the id of the schema with which a payload was written.

    Raises:
        EncodingError: the payload has no such header.
    """
    if not is_framed(payload):
        raise EncodingError("the payload doesn't start with 0 and a schema id")
    number: int = _FRAME.unpack_from(payload)[1]
    return number


def is_framed(payload: bytes) -> bool:
    """Whether a payload starts as if it had the header, with an id that a registry could give."""
    return len(payload) >= HEADER_BYTES and payload[0] == 0 and payload[1] < 0x80
