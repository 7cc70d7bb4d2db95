"""MessagePack, through the package `msgpack` (the extra of the same name)."""

from typing import Any

import msgpack  # type: ignore[import-untyped]
from zope.interface import implementer

from hermes.errors import EncodingError
from hermes.interfaces import IDecoder, IEncoder


@implementer(IEncoder, IDecoder)
class MessagePackEncoder:
    """One MessagePack object per message; str and bytes stay distinct, times keep their zone."""

    def encode(self, topic: str, value: Any) -> bytes:
        try:
            packed: bytes = msgpack.packb(value, datetime=True)
        except (TypeError, ValueError, OverflowError) as error:
            raise EncodingError(f"a {type(value).__name__} can't be packed: {error}") from error
        return packed

    def decode(self, topic: str, payload: bytes) -> Any:
        try:
            return msgpack.unpackb(payload, timestamp=3, strict_map_key=False)
        except Exception as error:  # its errors have no common root: ValueError, ExtraData, ...
            raise EncodingError(f"the payload is not MessagePack: {error}") from error
