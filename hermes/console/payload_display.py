"""Displays payloads: as text, JSON, a hex dump, MessagePack, Avro.

Payloads come from anybody. What is displayed is bounded in length, and free of anything that a page
or a terminal would obey; the templates escape it besides.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hermes.console.page_request import InputError
from hermes.console.registry_records import RegistryRecords
from hermes.errors import EncodingError, HermesError
from hermes.interfaces import IDecoder
from hermes.plugins.discovery import load_plugin
from hermes.protocol.stamps import without_stamp
from hermes.quoting import printable
from hermes.schemas.framing import HEADER_BYTES, header, is_framed

FORMATS: Final = ("auto", "text", "json", "hex", "msgpack", "avro")

#: How much of a value is shown among others; its own page shows more.
LIST_CHARACTERS: Final = 4_000
_SUMMARY_CHARACTERS: Final = 160
# A larger payload isn't decoded where many are shown.
_DECODED_BYTES: Final = 256 * 1024
_HEX_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class DisplayedValue:
    """A payload for people.

    Attributes:
        kind: the format that it is shown in, one of `FORMATS` but `auto`.
        text: all of it, or its beginning.
        left_out: how many characters (of a hex dump, bytes) were cut off `text`.
        problem: why it isn't shown as asked for; empty when it is.
        is_cut: whether `text` was cut and it isn't known how much is missing.
    """

    kind: str
    summary: str
    text: str
    left_out: int = 0
    problem: str = ""
    is_cut: bool = False


class ValueReader:
    """Displays payloads in one format.

    Args:
        how: one of `FORMATS`; `auto` shows records of a registry as `avro`, JSON as JSON, other
            UTF-8 as text, the rest as hex.
        schema: the Avro schema as JSON; only for `avro`.
        records: decodes records that carry a schema's id, where no schema is given; None where
            there is no registry.

    Raises:
        InputError: there is no such format, or the schema is invalid.
    """

    def __init__(self, how: str, schema: str = "", records: RegistryRecords | None = None) -> None:
        if how not in FORMATS:
            raise InputError(f"as: expected one of {', '.join(FORMATS)}")
        self._how = how
        self._records = None if schema else records
        self._decoder: IDecoder | None = None
        try:
            if how == "msgpack":
                self._decoder = load_plugin("hermes.encoders", "msgpack", IDecoder)
            elif how == "avro" and self._records is None:
                if not schema:
                    raise InputError("to show values as Avro, give their schema")
                self._decoder = load_plugin(
                    "hermes.encoders", "avro", IDecoder, schema=schema, schema_id=0
                )
        except InputError:
            raise
        except HermesError as error:
            raise InputError(str(error)) from error

    def decode(self, payload: bytes) -> Any:
        """Decode a payload, as JSON or a registry's record unless another format was asked for.

        Raises EncodingError: it isn't of that format; HermesError: the registry can't be asked.
        """
        payload = without_stamp(payload)
        if self._is_record(payload):
            assert self._records is not None
            return self._records.read(payload)
        if self._how == "msgpack":
            assert self._decoder is not None
            return _with_text_keys(self._decoder.decode("", payload))
        if self._how == "avro":
            assert self._decoder is not None
            body = payload[HEADER_BYTES:] if is_framed(payload) else payload
            return self._decoder.decode("", header(0) + body)
        try:
            return json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise EncodingError(f"the payload is not JSON: {error}") from error

    def _is_record(self, payload: bytes) -> bool:
        if self._records is None:
            return False
        return self._how == "avro" or (self._how == "auto" and is_framed(payload))

    def show(self, payload: bytes, most: int = LIST_CHARACTERS) -> DisplayedValue:
        if self._how == "hex":
            return _hex(payload, most)
        if self._how == "text":
            return _text(payload, most)
        if self._how == "auto":
            return self._guess(payload, most)
        if len(payload) > max(_DECODED_BYTES, most):
            return _hex(payload, most, "it is too large to be decoded here")
        try:
            return _value(self._how, self.decode(payload), most)
        except (HermesError, ValueError, RecursionError) as error:
            return _hex(payload, most, str(error))

    def _guess(self, payload: bytes, most: int) -> DisplayedValue:
        payload = without_stamp(payload)
        is_record = self._is_record(payload)
        may_be_decoded = is_record or payload[:1] in (b"{", b"[")
        if may_be_decoded and len(payload) <= max(_DECODED_BYTES, most):
            try:
                return _value("avro" if is_record else "json", self.decode(payload), most)
            except (EncodingError, ValueError, RecursionError):
                pass
            except HermesError as error:
                return _hex(payload, most, str(error))
        # A character that was cut in two is no sign of anything.
        errors = "ignore" if len(payload) > 4 * most else "strict"
        try:
            payload[: 4 * most].decode("utf-8", errors)
        except UnicodeDecodeError:
            return _hex(payload, most)
        return _text(payload, most)

    def readable(self, data: bytes) -> bytes:
        """The JSON of a registry's record; anything else unchanged. Raises HermesError."""
        if self._records is None or not is_framed(data):
            return data
        try:
            return json_text(self._records.read(data), LIST_CHARACTERS).encode("utf-8", "replace")
        except (EncodingError, ValueError, RecursionError):
            return data

    def shown_key(self, key: bytes) -> bytes:
        """As `readable`; unchanged also while the registry can't be asked."""
        try:
            return self.readable(key)
        except HermesError:
            return key

    def has_field(self, path: str, wanted: str) -> Callable[[bytes], bool]:
        """A test of payloads for a field.

        Args:
            path: names and numbers with dots between them, `user.emails.0`.
            wanted: the field's value as text, or as JSON; empty for any.

        Returns:
            The test. It raises HermesError while the registry can't be asked.
        """
        names = path.split(".")

        def test(payload: bytes) -> bool:
            try:
                value = self.decode(payload)
                for name in names:
                    value = value[int(name) if isinstance(value, list) else name]
                text = value if isinstance(value, str) else json_text(value, len(wanted) + 1)
            except (EncodingError, LookupError, TypeError, ValueError, RecursionError):
                return False  # it is not of the format, or has no such field
            return not wanted or text == wanted

        return test


def lines_text(text: str) -> str:
    """Text without control, bidi and other invisible characters, but with lines and tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def _cut(kind: str, text: str, most: int, left_out: int = 0) -> DisplayedValue:
    summary = printable(" ".join(text[: 2 * _SUMMARY_CHARACTERS].split()))[:_SUMMARY_CHARACTERS]
    return DisplayedValue(
        kind, summary, lines_text(text[:most]), left_out + max(len(text) - most, 0)
    )


def _text(payload: bytes, most: int) -> DisplayedValue:
    text = payload[: 4 * most].decode("utf-8", "backslashreplace")
    return _cut("text", text, most, max(len(payload) - 4 * most, 0))


def _hex(payload: bytes, most: int, problem: str = "") -> DisplayedValue:
    shown = payload[: most // 4]
    rows = []
    for start in range(0, len(shown), _HEX_WIDTH):
        row = shown[start : start + _HEX_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start:08x}  {row.hex(' '):<47}  {letters}")
    summary = payload[:48].hex(" ")
    return DisplayedValue(
        "hex", summary, "\n".join(rows), len(payload) - len(shown), printable(problem)
    )


def _value(kind: str, value: Any, most: int) -> DisplayedValue:
    text = json_text(value, most + 1, indent=2)
    summary = printable(json_text(value, 2 * _SUMMARY_CHARACTERS))[:_SUMMARY_CHARACTERS]
    return DisplayedValue(kind, summary, lines_text(text[:most]), is_cut=len(text) > most)


def json_text(value: Any, most: int, indent: int | None = None) -> str:
    """A value as JSON, or its beginning: indented, a few kilobytes can become gigabytes."""
    encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, default=_other)
    pieces, length = [], 0
    for piece in encoder.iterencode(value):
        pieces.append(piece)
        length += len(piece)
        if length >= most:
            break
    return "".join(pieces)[:most]


def _with_text_keys(value: Any) -> Any:
    # MessagePack's keys may be of any type; JSON's writer takes only some.
    if isinstance(value, dict):
        return {str(key): _with_text_keys(each) for key, each in value.items()}
    return [_with_text_keys(each) for each in value] if isinstance(value, list) else value


def _other(value: object) -> object:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return str(value)
