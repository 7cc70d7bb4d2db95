"""Payloads as they are, text, and JSON: what the standard library encodes."""

import json
from typing import Any

from zope.interface import implementer

from hermes.errors import ConfigError, EncodingError
from hermes.interfaces import IDecoder, IEncoder


@implementer(IEncoder, IDecoder)
class BytesEncoder:
    """The default: bytes pass unchanged."""

    def encode(self, topic: str, value: Any) -> bytes:
        """See `IEncoder`; bytearrays and memoryviews are copied, as their owner may change them."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise EncodingError(
            f"expected bytes, got {type(value).__name__}; "
            "encode it, or choose an encoder: string, json, msgpack or avro"
        )

    def decode(self, topic: str, payload: bytes) -> bytes:
        return payload


@implementer(IEncoder, IDecoder)
class StringEncoder:
    """Text in a character set.

    Args:
        encoding: a Python codec that encodes text.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except LookupError as error:
            raise ConfigError("encoder_options.encoding", str(error)) from error
        self._encoding = encoding

    def encode(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, str):
            raise EncodingError(f"expected a str, got {type(value).__name__}")
        try:
            return value.encode(self._encoding)
        except UnicodeError as error:
            raise EncodingError(
                f"the text can't be encoded in {self._encoding}: {error}"
            ) from error

    def decode(self, topic: str, payload: bytes) -> str:
        try:
            return payload.decode(self._encoding)
        except UnicodeError as error:
            raise EncodingError(f"the payload is not {self._encoding}: {error}") from error


@implementer(IEncoder, IDecoder)
class JsonEncoder:
    """JSON in UTF-8 without spaces. NaN and infinities are refused: they aren't JSON."""

    def encode(self, topic: str, value: Any) -> bytes:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodingError(
                f"a {type(value).__name__} can't be written as JSON: {error}"
            ) from error

    def decode(self, topic: str, payload: bytes) -> Any:
        try:
            return json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise EncodingError(f"the payload is not JSON: {error}") from error
