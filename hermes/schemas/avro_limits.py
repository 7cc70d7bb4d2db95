"""Avro that would cost far more than the bytes that arrive: items of no bytes, and recursion.

An array of nulls says in five bytes how many millions of them there are, and readers make a list of
that length; thirty records, each with two fields of the next one, are a billion values, and no byte
at all if the last is empty: such schemas are refused. A record that holds records of its own kind
is read by C code that calls itself for each, until the process runs out of stack: such payloads are
walked through before they are read. So is a schema of thousands of arrays in arrays, or of records
that each name the one before it: such schemas are refused, too. Knows Avro's binary encoding, from
its specification, but no library.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

#: How deep values may be nested in a recursive schema.
MAX_DEPTH: Final = 200

#: How deep a schema's JSON may be nested; a record in a record takes three levels.
MAX_SCHEMA_DEPTH: Final = 300

#: How deep types may be nested, named ones included: records, unions, arrays and maps.
MAX_TYPE_DEPTH: Final = 250

#: How many values may come of no bytes at all.
MAX_FREE_VALUES: Final = 10_000

_RECORDS: Final = ("record", "error")
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LONGEST_VARINT: Final = 10
_MESSAGE: Final = f"values are nested more than {MAX_DEPTH} deep"


def check_text(schema: Any) -> None:
    """Check a schema before a library does, which would call itself for each level.

    Args:
        schema: what `json.load` returns.

    Raises:
        ValueError: it is nested too deep, or says that it was parsed already.
    """
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"it is nested more than {MAX_SCHEMA_DEPTH} deep")
        following: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                if "__fastavro_parsed" in each or "__named_schemas" in each:
                    raise ValueError("it has keys that are fastavro's own")
                following += each.values()
            elif isinstance(each, list):
                following += each
        level = following


def check_items(schema: Any, named: Mapping[str, Any]) -> None:
    """Refuse arrays whose items take no bytes, records of too much that takes none, and depth.

    Raises:
        ValueError: the schema has one.
    """
    if _depth(schema, named, {}) > MAX_TYPE_DEPTH:
        raise ValueError(f"its types are nested more than {MAX_TYPE_DEPTH} deep")
    counts: dict[str, int] = {}
    known: dict[str, bool] = {}
    for each in _all_types(schema, named, set()):
        is_array = isinstance(each, dict) and each["type"] == "array"
        if is_array and _takes_no_bytes(each["items"], named, known):
            raise ValueError("an array's items take no bytes, so that its length has no bound")
        if _free_values(each, named, counts) > MAX_FREE_VALUES:
            raise ValueError(f"more than {MAX_FREE_VALUES} values of it take no bytes")


def is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether a record of the schema holds records of its own kind."""
    around: dict[str, bool] = {}  # the records found so far; True inside of one

    def recurs(schema: Any) -> bool:
        schema = _looked_up(schema, named)
        name = schema["name"] if isinstance(schema, dict) and schema["type"] in _RECORDS else None
        if name is None:
            return any(map(recurs, _inner_types(schema)))
        if name not in around:
            around[name] = True
            if any(map(recurs, _inner_types(schema))):
                return True
            around[name] = False
        return around[name]

    return recurs(schema)


def check_depth(payload: bytes, position: int, schema: Any, named: Mapping[str, Any]) -> None:
    """Walk through a value before it is read.

    Args:
        payload: holds the value.
        position: where it begins.
        schema: the writer's, parsed; its arrays were checked with `check_items`.
        named: its named types.

    Raises:
        ValueError: it is nested too deep, or not a value of the schema.
    """
    _Walk(payload, position, named).value(schema, 0)


def check_nesting(value: Any) -> None:
    """Check how deep a value is nested before it is written.

    Raises:
        ValueError: it is nested too deep, or contains itself.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > 2 * MAX_DEPTH:  # a union's tuples count here, and not in what is written
            raise ValueError(_MESSAGE)
        # Each only once, since a value may contain another many times.
        level = list({id(inner): inner for each in level for inner in _members(each)}.values())


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for each in value:
        if isinstance(each, Mapping | list | tuple):
            yield each


class _Walk:
    def __init__(self, payload: bytes, position: int, named: Mapping[str, Any]) -> None:
        self._payload = payload
        self._position = position
        self._named = named

    def value(self, schema: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(_MESSAGE)
        schema = _looked_up(schema, self._named)
        if isinstance(schema, list):
            index = self._varint()
            if not 0 <= index < len(schema):
                raise ValueError(f"a union has no branch {index}")
            self.value(schema[index], depth)
            return
        kind = schema["type"]
        if kind in _RECORDS:
            for field in schema["fields"]:
                self.value(field["type"], depth + 1)
        elif kind == "array":
            self._blocks(schema["items"], depth, is_map=False)
        elif kind == "map":
            self._blocks(schema["values"], depth, is_map=True)
        elif kind in ("bytes", "string"):
            self._skip(self._varint())
        elif kind in ("int", "long", "enum"):
            self._varint()
        else:
            self._skip(schema["size"] if kind == "fixed" else _SIZES[kind])

    def _blocks(self, items: Any, depth: int, *, is_map: bool) -> None:
        while count := self._varint():
            if count < 0:
                self._varint()  # the block's size
            for _ in range(abs(count)):
                if is_map:
                    self._skip(self._varint())
                self.value(items, depth + 1)

    def _skip(self, count: int) -> None:
        if not 0 <= count <= len(self._payload) - self._position:
            raise ValueError(f"{count} bytes where {len(self._payload) - self._position} are left")
        self._position += count

    def _varint(self) -> int:
        data = self._payload[self._position : self._position + _LONGEST_VARINT]
        number = 0
        for place, byte in enumerate(data):
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                self._position += place + 1
                return (number >> 1) ^ -(number & 1)
        raise ValueError("a number has no end")


def _takes_no_bytes(schema: Any, named: Mapping[str, Any], known: dict[str, bool]) -> bool:
    """Whether a type's values take none; `known` has what was found out about records."""
    schema = _looked_up(schema, named)
    if isinstance(schema, list):
        return False  # a union begins with its branch
    kind = schema["type"]
    if kind in _RECORDS:
        name = schema["name"]
        if name not in known:
            known[name] = True  # within itself
            fields = schema["fields"]
            known[name] = all(_takes_no_bytes(field["type"], named, known) for field in fields)
        return known[name]
    return kind == "null" or (kind == "fixed" and not schema["size"])


def _depth(schema: Any, named: Mapping[str, Any], depths: dict[str, int]) -> int:
    """How deep a type's values are nested, once through records within themselves."""
    schema = _looked_up(schema, named)
    name = schema.get("name") if isinstance(schema, dict) else None
    if name not in depths:
        if name is not None:
            depths[name] = 0  # within itself: see `check_depth`
        inner = [_depth(each, named, depths) for each in _inner_types(schema)]
        found = 1 + max(inner, default=0)
        if name is None:
            return found
        depths[name] = found
    return depths[name]


def _free_values(schema: Any, named: Mapping[str, Any], counts: dict[str, int]) -> int:
    """How many values of a type take no bytes; `counts` has what is known of records."""
    schema = _looked_up(schema, named)
    if isinstance(schema, list):
        return 0  # its branch takes one
    kind = schema["type"]
    if kind not in _RECORDS:
        return int(kind == "null" or (kind == "fixed" and not schema["size"]))
    name = schema["name"]
    if name not in counts:
        counts[name] = 0  # within itself: its values are counted as they are read
        found = sum(_free_values(field["type"], named, counts) for field in schema["fields"])
        counts[name] = min(max(found, int(not schema["fields"])), MAX_FREE_VALUES + 1)
    return counts[name]


def _all_types(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterator[Any]:
    schema = _looked_up(schema, named)
    if isinstance(schema, dict) and "name" in schema:
        if schema["name"] in seen:
            return
        seen.add(schema["name"])
    yield schema
    for inner in _inner_types(schema):
        yield from _all_types(inner, named, seen)


def _inner_types(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        yield from schema
    elif schema["type"] in _RECORDS:
        yield from (field["type"] for field in schema["fields"])
    elif schema["type"] == "array":
        yield schema["items"]
    elif schema["type"] == "map":
        yield schema["values"]


def _looked_up(schema: Any, named: Mapping[str, Any]) -> Any:
    """A type as a list (a union), or as a mapping whose "type" is a string."""
    while True:
        if isinstance(schema, str):
            schema = named.get(schema) or {"type": schema}
        elif isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema["type"] in named:
            schema = named[schema["type"]]
        else:
            return schema
