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
from collections.abc import Iterator, Mapping
from typing import Any, Final, SupportsIndex

import fastavro

from hermes.errors import EncodingError
from hermes.schemas.avro import AvroSchema, described, parse
from hermes.schemas.avro_limits import check_depth
from hermes.schemas.json_values import default_to_value
from hermes.schemas.logical_types import DECIMAL, OWN_DECIMAL, converter

#: A schema with more places isn't compared with another.
_MOST_PLACES: Final = 10_000

#: What the compiled reader makes of types, before their logical types.
_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "string": (str,),
    "array": (list,),
    "map": (dict,),
}


class AvroReading:
    """Reads values of one schema. Any number of threads may use it.

    Args:
        writer: the schema with which they were written.
        reader: the schema to resolve them to; None to take them as they are.

    Raises:
        ValueError: a default of the reader's schema doesn't fit its field.
    """

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None = None) -> None:
        self._writer = writer
        self._wanted: Any = None
        self._logical: _LogicalTypes | None = None
        self._copies = False
        if reader is None or reader.sources == writer.sources:
            self._is_wrapped = not writer.is_record
            self._written = _strict_form(writer, is_wrapped=self._is_wrapped)
            return
        self._is_wrapped = not (writer.is_record and reader.is_record)
        is_bare = not _have_same_logical_types(writer, reader)
        self._written = _strict_form(writer, is_wrapped=self._is_wrapped, is_bare=is_bare)
        self._wanted = _strict_form(
            reader, is_wrapped=self._is_wrapped, is_bare=is_bare, has_defaults=True
        )
        self._logical = _LogicalTypes(reader) if is_bare else None
        self._copies = any(isinstance(each.get("default"), list | dict) for each in _fields(reader))

    def read(self, payload: bytes, position: int = 0) -> Any:
        """Read one value, which ends where the payload does.

        Args:
            payload: holds the value.
            position: where it begins.

        Raises:
            EncodingError: it is not a value of the schema, or can't be resolved.
        """
        body = io.BytesIO(payload)
        body.seek(position)
        try:
            if self._writer.recurs:
                check_depth(payload, position, self._writer.parsed, self._writer.named)
            value: Any = fastavro.schemaless_reader(body, self._written, self._wanted)
            if self._is_wrapped:
                value = value["value"]
            if self._logical is not None:
                value = self._logical.applied(value)
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
    """A schema as it is read with.

    Args:
        schema: the schema.
        is_wrapped: see `hermes.schemas.avro.parse`.
        is_bare: whether logical types are left out.
        has_defaults: whether its fields' defaults are looked at: a reader's are.
    """
    sources = [_bare(each) for each in schema.sources] if is_bare else schema.sources
    named: dict[str, Any] = {}
    parsed = parse(sources, named, is_wrapped=is_wrapped)
    for record in named.values() if has_defaults else ():
        for field in record.get("fields", ()):
            if "default" in field:
                try:
                    value = default_to_value(field["default"], field["type"], named)
                except ValueError as error:
                    raise ValueError(f"the default of {field['name']}: {error}") from None
                field["default"] = value
    for each in (*named.values(), parsed):
        _make_strict(each)
    return parsed


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key == "default" else _bare(value)
        for key, value in schema.items()
        if key != "logicalType" or not isinstance(value, str)
    }


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


def _fields(schema: AvroSchema) -> Iterator[dict[str, Any]]:
    for each in schema.named.values():
        yield from each.get("fields", ())


# -- logical types ------------------------------------------------------------------------------


def _have_same_logical_types(writer: AvroSchema, reader: AvroSchema) -> bool:
    """Whether each place that both have is of the same logical types.

    In doubt they have not: an alias may move a place, and of some schemas there are too many.
    """
    written, wanted = _Places(writer).found, _Places(reader).found
    if not any(each - {""} for places in (written, wanted) for each in places.values()):
        return True
    if max(len(written), len(wanted)) > _MOST_PLACES:
        return False
    aliased = (*_fields(reader), *reader.named.values())
    return not any(each.get("aliases") for each in aliased) and all(
        wanted.get(path, logical) == logical for path, logical in written.items()
    )


class _Places:
    """Where in a schema there are values, and of which logical types.

    Attributes:
        found: by the path of fields the logical types there; "" for none.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._named = schema.named
        self.found: dict[tuple[str, ...], set[str]] = {}
        self._add(schema.parsed, (), ())

    def _add(self, schema: Any, path: tuple[str, ...], around: tuple[str, ...]) -> None:
        if len(self.found) > _MOST_PLACES:
            return
        if isinstance(schema, list):
            for each in schema:
                self._add(each, path, around)
            return
        schema = _looked_up(schema, self._named)
        kind = schema["type"]
        if "fields" in schema:
            if schema["name"] not in around:
                for field in schema["fields"]:
                    self._add(field["type"], (*path, field["name"]), (*around, schema["name"]))
        elif kind == "array":
            self._add(schema["items"], (*path, "[]"), around)
        elif kind == "map":
            self._add(schema["values"], (*path, "{}"), around)
        elif kind != "null":
            parts = (schema.get(key, "") for key in ("logicalType", "precision", "scale"))
            self.found.setdefault(path, set()).add(" ".join(map(str, parts)).strip())


class _LogicalTypes:
    """Applies a schema's logical types to values that were read without any.

    Args:
        schema: the reader's.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema.parsed
        self._named = schema.named

    def applied(self, value: Any) -> Any:
        """The value with its logical types."""
        return self._of(value, self._schema)

    def _of(self, value: Any, schema: Any) -> Any:
        if isinstance(schema, list):
            schema = next(each for each in schema if self._is_of(value, each))
        schema = _looked_up(schema, self._named)
        kind = schema["type"]
        if "fields" in schema:
            return {
                field["name"]: self._of(value[field["name"]], field["type"])
                for field in schema["fields"]
            }
        if kind == "array":
            return [self._of(each, schema["items"]) for each in value]
        if kind == "map":
            return {name: self._of(each, schema["values"]) for name, each in value.items()}
        convert = converter(schema)
        return value if convert is None else convert(value, schema, None)

    def _is_of(self, value: Any, schema: Any) -> bool:
        schema = _looked_up(schema, self._named)
        if "fields" in schema:
            names = {field["name"] for field in schema["fields"]}
            return isinstance(value, dict) and value.keys() == names
        if schema.get("logicalType") == DECIMAL:
            schema["logicalType"] = OWN_DECIMAL
        if schema["type"] == "enum":
            return isinstance(value, str) and value in schema["symbols"]
        return type(value) in _PYTHON_TYPES[schema["type"]]


def _looked_up(schema: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(schema, str):
        return named.get(schema) or {"type": schema}
    return schema
