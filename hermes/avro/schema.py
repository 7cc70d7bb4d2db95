"""One Avro schema, parsed by fastavro (the extra `avro`) and checked, which writes values.

`limits` says what is refused because of its cost; `reader` reads values.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import fastavro

from hermes.avro.graph import PRIMITIVES, RECORDS, AvroField, AvroType
from hermes.avro.limits import check_nesting, check_payload, check_text, check_types, is_recursive
from hermes.errors import ConfigError, EncodingError
from hermes.quoting import printable

#: As which a value that isn't a record is written and read: only records carry with them the types
#: that they name. A record of one field has the bytes of that field.
WRAPPED: Final = "hermes_wrapped_value"

_MAX_REASON: Final = 500


class AvroSchema:
    """A schema. Immutable; any number of threads may use it.

    Args:
        schema: what `json.load` returns, or the JSON text; a type's name may stand alone.
        referenced: the schemas, likewise, that have the types that it names, in dependency order.
        keep_uuids_as_text: whether strings that are UUIDs stay strings.

    Attributes:
        text: the schema as JSON, without those that it refers to.
        sources: all of them, as `json.load` returns them; itself is the last.
        is_record: whether it defines a record; not where it only names one.
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
                given = [without_logical_types(each, _is_uuid) for each in given]
            self.sources: Sequence[Any] = given
            parsed, graph = parse(given)
            self.root = graph.type_of(parsed)
            check_types(self.root)
            self.recurs = is_recursive(self.root)
        except Exception as error:  # fastavro lets everything through that a schema's types raise
            raise ValueError(f"not an Avro schema: {described(error)}") from error
        self.is_record = isinstance(parsed, dict) and self.root.kind in RECORDS
        self._written = parsed if self.is_record else parse(given, is_wrapped=True)[0]

    @property
    def name(self) -> str | None:
        return self.root.name or None

    def write(self, value: Any, *, is_strict: bool = False) -> bytes:
        """Write a value.

        Args:
            value: what the schema's types are in Python, as fastavro's documentation has it.
            is_strict: whether to refuse fields that a record's schema doesn't have; otherwise they
                are left out.

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
                check_payload(buffer.getvalue(), 0, self.root)
        except Exception as error:  # fastavro lets everything through that the value's types raise
            raise EncodingError(
                f"a {type(value).__name__} does not fit the schema: {described(error)}"
            ) from error
        return buffer.getvalue()


def configured_schema(
    key: str, schema: Any, referenced: Iterable[Any] = (), *, keep_uuids_as_text: bool = False
) -> AvroSchema:
    """Make a schema of an argument or setting; ConfigError, with its key, if it can't be used."""
    try:
        return AvroSchema(schema, referenced, keep_uuids_as_text=keep_uuids_as_text)
    except ValueError as error:
        raise ConfigError(key, str(error)) from error


class ParsedTypes:
    """Makes types of what fastavro's `parse_schema` has returned; `named` has its named types."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.named = named
        self._made: dict[int, AvroType] = {}
        self._without_fields: list[AvroType] = []

    def type_of(self, parsed: Any) -> AvroType:
        found = self._type(parsed)
        while self._without_fields:  # not by recursion: thousands may name each other
            kind = self._without_fields.pop()
            kind.fields = tuple(map(self._field, kind.properties.get("fields", ())))
        return found

    def _type(self, parsed: Any) -> AvroType:
        if isinstance(parsed, list):
            return AvroType("union", branches=tuple(map(self._type, parsed)))
        if isinstance(parsed, str):
            return AvroType(parsed) if parsed in PRIMITIVES else self._type(self.named[parsed])
        if "name" in parsed:
            return self._named(parsed)
        items = None if parsed["type"] in PRIMITIVES else parsed.get("items", parsed.get("values"))
        held = None if items is None else self._type(items)
        return AvroType(parsed["type"], items=held, properties=parsed)

    def _named(self, parsed: dict[str, Any]) -> AvroType:
        if "__fastavro_parsed" in parsed:  # the outermost, of which there is a copy
            parsed = self.named[parsed["name"]]
        if id(parsed) not in self._made:
            made = self._made[id(parsed)] = AvroType(
                parsed["type"],
                parsed["name"],
                tuple(parsed.get("aliases", ())),
                symbols=dict.fromkeys(parsed.get("symbols", ())),
                size=parsed.get("size", 0),
                properties=parsed,
            )
            self._without_fields.append(made)
        return self._made[id(parsed)]

    def _field(self, parsed: dict[str, Any]) -> AvroField:
        return AvroField(
            parsed["name"],
            self._type(parsed["type"]),
            tuple(parsed.get("aliases", ())),
            "default" in parsed,
            parsed.get("default"),
        )


def parse(sources: Sequence[Any], *, is_wrapped: bool = False) -> tuple[Any, ParsedTypes]:
    """Parse the last of several schemas, each of which may name the types of those before it.

    Args:
        sources: as `json.load` returns them.
        is_wrapped: whether the result is a record whose only field, `value`, is of the schema.

    Returns:
        What fastavro's `parse_schema` returns, and what makes types of it.
    """
    named: dict[str, Any] = {}
    for each in sources[:-1]:
        fastavro.parse_schema(each, named_schemas=named)
    last = sources[-1]
    if is_wrapped:
        last = {"type": "record", "name": WRAPPED, "fields": [{"name": "value", "type": last}]}
    return fastavro.parse_schema(last, named_schemas=named), ParsedTypes(named)


def without_logical_types(schema: Any, is_unwanted: Callable[[Mapping[str, Any]], bool]) -> Any:
    if isinstance(schema, list):
        return [without_logical_types(each, is_unwanted) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = "logicalType" if is_unwanted(schema) else None
    return {
        key: value if key == "default" else without_logical_types(value, is_unwanted)
        for key, value in schema.items()
        if key != left_out
    }


def described(error: Exception) -> str:
    """An error of fastavro in words; it may quote whole schemas."""
    text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return printable(text, _MAX_REASON)


def _loaded(schema: Any) -> Any:
    is_json = isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"')
    return json.loads(schema) if is_json else schema


def _is_uuid(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and schema.get("logicalType") == "uuid"
