"""Values read from Avro's binary encoding, as they were written or resolved to a reader's schema.

fastavro reads and resolves. Beyond what it does

- damaged bytes with a negative index into a union or an enum are an error, where it would count
  from the end and return what nobody wrote;
- a field's default is what its type says (bytes, a timestamp), where it would be the schema's JSON;
- where writer and reader have different logical types, the reader's is applied: Avro's rules of
  resolution know none. It would apply the writer's;
- `logical_types` reads decimals.
"""

import copy
import io
from collections.abc import Mapping
from typing import Any, Final, SupportsIndex

import fastavro

from hermes.avro.graph import RECORDS, AvroType
from hermes.avro.json_values import default_to_value
from hermes.avro.limits import check_payload
from hermes.avro.logical_types import DECIMAL, OWN_DECIMAL, logical_value
from hermes.avro.schema import AvroSchema, described, parse, without_logical_types
from hermes.errors import EncodingError

#: A schema with more places isn't compared with another.
_MOST_PLACES: Final = 10_000

#: What the compiled reader makes of types, before their logical types.
_PYTHON_TYPES: Final[Mapping[str, type]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


class AvroReader:
    """Reads values of one schema. Any number of threads may use it.

    Args:
        reader: the schema to resolve them to; None to take them as they are.

    Raises:
        ValueError: a default of the reader's schema doesn't fit its field.
    """

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None = None) -> None:
        self._writer = writer
        self._wanted: Any = None
        self._logical: AvroType | None = None
        self._copies = False
        if reader is None or reader.sources == writer.sources:
            self._is_wrapped = not writer.is_record
            self._written = _strict_form(writer, is_wrapped=self._is_wrapped)
            return
        self._is_wrapped = not (writer.is_record and reader.is_record)
        is_bare = not _have_same_logical_types(writer.root, reader.root)
        self._written = _strict_form(writer, is_wrapped=self._is_wrapped, is_bare=is_bare)
        self._wanted = _strict_form(
            reader, is_wrapped=self._is_wrapped, is_bare=is_bare, has_defaults=True
        )
        self._logical = reader.root if is_bare else None
        self._copies = any(
            isinstance(field.default, list | dict)
            for kind in reader.root.reachable()
            for field in kind.fields
        )

    def read(self, payload: bytes, position: int = 0) -> Any:
        """Read one value, which begins at `position` and ends where the payload does.

        Raises EncodingError: it is not a value of the schema, or can't be resolved.
        """
        body = io.BytesIO(payload)
        body.seek(position)
        try:
            if self._writer.recurs:
                check_payload(payload, position, self._writer.root)
            value: Any = fastavro.schemaless_reader(body, self._written, self._wanted)
            if self._is_wrapped:
                value = value["value"]
            if self._logical is not None:
                value = _with_logical_types(value, self._logical)
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError, MemoryError, ...
            raise EncodingError(f"not a value of the schema: {described(error)}") from error
        if body.tell() != len(payload):
            raise EncodingError(f"{len(payload) - body.tell()} bytes follow the value")
        # Values share the fields' defaults; what an application does to one must not reach others.
        return copy.deepcopy(value) if self._copies else value


# -- what fastavro is given ---------------------------------------------------------------------


def _strict_form(
    schema: AvroSchema, *, is_wrapped: bool, is_bare: bool = False, has_defaults: bool = False
) -> Any:
    """A schema as it is read with; `is_bare`: without logical types.

    `has_defaults`: whether its fields' defaults are looked at: a reader's are.
    """
    sources = schema.sources
    if is_bare:
        sources = [without_logical_types(each, _has_logical_type) for each in sources]
    parsed, types = parse(sources, is_wrapped=is_wrapped)
    for record in types.named.values() if has_defaults else ():
        for field in record.get("fields", ()):
            if "default" in field:
                try:
                    value = default_to_value(field["default"], types.type_of(field["type"]))
                except ValueError as error:
                    raise ValueError(f"the default of {field['name']}: {error}") from None
                field["default"] = value
    for each in (*types.named.values(), parsed):
        _make_strict(each)
    return parsed


def _has_logical_type(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("logicalType"), str)


class _Branches(list[Any]):
    """A union's types or an enum's symbols, which can't be indexed from the end.

    In damaged bytes an index may be negative; fastavro would count from the end and return a null,
    or a symbol, that nobody wrote. Its compiled code adds the length before it asks, so with any
    length but 0, some negative index would lead to an element.
    """

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, int) and index < 0:
            raise IndexError(f"there is no element {index}")
        return super().__getitem__(index)


def _make_strict(schema: Any) -> Any:
    """Replace, in place, what fastavro reads otherwise than we do: see above."""
    if isinstance(schema, list):
        return _Branches(_make_strict(each) for each in schema)
    if isinstance(schema, dict):
        for key in ("type", "items", "values"):
            if key in schema:
                schema[key] = _make_strict(schema[key])
        if schema.get("logicalType") == DECIMAL:
            schema["logicalType"] = OWN_DECIMAL
        if schema["type"] == "enum":
            schema["symbols"] = _Branches(schema["symbols"])
        for field in schema.get("fields", ()):
            field["type"] = _make_strict(field["type"])
    return schema


# -- logical types ------------------------------------------------------------------------------


def _have_same_logical_types(writer: AvroType, reader: AvroType) -> bool:
    """Whether each place that both have is of the same logical types.

    In doubt they have not: an alias may move a place, and of some schemas there are too many.
    """
    written, wanted = _places(writer), _places(reader)
    if not any(each - {""} for places in (written, wanted) for each in places.values()):
        return True
    if max(len(written), len(wanted)) > _MOST_PLACES:
        return False
    is_aliased = any(
        kind.aliases or any(field.aliases for field in kind.fields) for kind in reader.reachable()
    )
    return not is_aliased and all(
        wanted.get(path, logical) == logical for path, logical in written.items()
    )


def _places(root: AvroType) -> dict[tuple[str, ...], set[str]]:
    """Where in a schema there are values: by the path of fields the logical types, "" for none."""
    found: dict[tuple[str, ...], set[str]] = {}

    def add(kind: AvroType, path: tuple[str, ...], around: tuple[AvroType, ...]) -> None:
        if len(found) > _MOST_PLACES or kind in around:
            return
        if kind.kind in RECORDS:
            for field in kind.fields:
                add(field.type, (*path, field.name), (*around, kind))
        elif kind.items is not None:
            add(kind.items, (*path, kind.kind), around)
        elif kind.kind == "union":
            for each in kind.branches:
                add(each, path, around)
        elif kind.kind != "null":
            parts = (kind.properties.get(key, "") for key in ("logicalType", "precision", "scale"))
            found.setdefault(path, set()).add(" ".join(map(str, parts)).strip())

    add(root, (), ())
    return found


def _with_logical_types(value: Any, kind: AvroType) -> Any:
    if kind.kind == "union":
        kind = next(each for each in kind.branches if _may_be(value, each))
    if kind.kind in RECORDS:
        return {each.name: _with_logical_types(value[each.name], each.type) for each in kind.fields}
    if kind.items is None:
        return logical_value(value, kind)
    if kind.kind == "array":
        return [_with_logical_types(each, kind.items) for each in value]
    return {name: _with_logical_types(each, kind.items) for name, each in value.items()}


def _may_be(value: Any, kind: AvroType) -> bool:
    if kind.kind in RECORDS:
        return isinstance(value, dict) and value.keys() == {each.name for each in kind.fields}
    if kind.kind == "enum":
        return isinstance(value, str) and value in kind.symbols
    return type(value) is _PYTHON_TYPES[kind.kind]
