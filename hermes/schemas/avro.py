"""One Avro schema, parsed and checked, which writes values; by fastavro (the extra `avro`).

`avro_limits` says what is refused because of its cost; `avro_reading` reads values.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import fastavro

from hermes.errors import EncodingError
from hermes.quoting import printable
from hermes.schemas.avro_limits import (
    check_depth,
    check_items,
    check_nesting,
    check_text,
    is_recursive,
)

#: As which a value that isn't a record is written and read: only records carry with them the types
#: that they name. A record of one field has the bytes of that field.
WRAPPED: Final = "hermes_wrapped_value"

_RECORDS: Final = ("record", "error")
_MAX_REASON: Final = 500


class AvroSchema:
    """A schema. Immutable; any number of threads may use it.

    Args:
        schema: what `json.load` returns, or the JSON text; a type's name may stand alone.
        referenced: the schemas, likewise, that have the types that it names, each after those that
            it needs itself.
        keep_uuids_as_text: whether strings that are UUIDs stay strings.

    Attributes:
        text: the schema as JSON, without those that it stands on.
        sources: all of them, as `json.load` returns them; itself is the last.
        parsed: as fastavro's `parse_schema` returns it.
        named: its named types, and those of the schemas that it stands on.
        recurs: whether a record of it holds records of its own kind.

    Raises:
        ValueError: it is no schema, or refused; the text says why.
    """

    def __init__(
        self, schema: Any, referenced: Iterable[Any] = (), *, keep_uuids_as_text: bool = False
    ) -> None:
        try:
            given = [_loaded(each) for each in (*referenced, schema)]
            for each in given:
                check_text(each)
            self.text = json.dumps(given[-1])
            if keep_uuids_as_text:
                given = [_without_uuids(each) for each in given]
            self.sources: Sequence[Any] = given
            self.named: dict[str, Any] = {}
            self.parsed = parse(given, self.named)
            check_items(self.parsed, self.named)
            self.recurs = is_recursive(self.parsed, self.named)
        except Exception as error:  # fastavro lets everything through that a schema's types raise
            raise ValueError(f"not an Avro schema: {described(error)}") from error
        self._written = self.parsed if self.is_record else parse(given, {}, is_wrapped=True)

    @property
    def is_record(self) -> bool:
        """Whether its values are records."""
        return isinstance(self.parsed, dict) and self.parsed["type"] in _RECORDS

    @property
    def name(self) -> str | None:
        """The full name of its type; None if that has none."""
        if isinstance(self.parsed, dict):
            name = self.parsed.get("name")
            return name if isinstance(name, str) else None
        return self.parsed if isinstance(self.parsed, str) and self.parsed in self.named else None

    def write(self, value: Any, *, is_strict: bool = False) -> bytes:
        """Write a value.

        Args:
            value: what the schema's types are in Python, as fastavro's documentation has it.
            is_strict: whether fields that a record's schema doesn't have are refused; they are left
                out otherwise.

        Raises:
            EncodingError: it doesn't fit the schema.
        """
        buffer = io.BytesIO()
        try:
            if self.recurs:
                check_nesting(value)
            whole = value if self.is_record else {"value": value}
            fastavro.schemaless_writer(buffer, self._written, whole, strict_allow_default=is_strict)
            if self.recurs:
                check_depth(buffer.getvalue(), 0, self.parsed, self.named)
        except Exception as error:  # fastavro lets everything through that the value's types raise
            raise EncodingError(
                f"a {type(value).__name__} does not fit the schema: {described(error)}"
            ) from error
        return buffer.getvalue()


def parse(sources: Sequence[Any], named: dict[str, Any], *, is_wrapped: bool = False) -> Any:
    """Parse a schema, the last of several of which each may name the types of those before it.

    Args:
        sources: as `json.load` returns them.
        named: empty; gets the named types.
        is_wrapped: whether the result is a record whose only field, `value`, is of the schema.
    """
    for each in sources[:-1]:
        fastavro.parse_schema(each, named_schemas=named)
    last = sources[-1]
    if is_wrapped:
        last = {"type": "record", "name": WRAPPED, "fields": [{"name": "value", "type": last}]}
    return fastavro.parse_schema(last, named_schemas=named)


def described(error: Exception) -> str:
    """An error of fastavro in words; it may quote whole schemas."""
    text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return printable(text, _MAX_REASON)


def _loaded(schema: Any) -> Any:
    is_json = isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"')
    return json.loads(schema) if is_json else schema


def _without_uuids(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_uuids(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Mapping[str, Any] = {key: _without_uuids(value) for key, value in schema.items()}
    if kept.get("type") == "string" and kept.get("logicalType") == "uuid":
        return {key: value for key, value in kept.items() if key != "logicalType"}
    return kept
