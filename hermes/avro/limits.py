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

from hermes.avro.graph import RECORDS, AvroType

#: How deep values may be nested in a recursive schema.
MAX_DEPTH: Final = 200

#: How deep a schema's JSON may be nested; a record in a record takes three levels.
MAX_SCHEMA_DEPTH: Final = 300

#: How deep types may be nested, named ones included: records, unions, arrays and maps.
MAX_TYPE_DEPTH: Final = 250

#: How many values may come of no bytes at all.
MAX_FREE_VALUES: Final = 10_000

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LONGEST_VARINT: Final = 10
_MESSAGE: Final = f"values are nested more than {MAX_DEPTH} deep"


def check_text(schema: Any) -> None:
    """Check JSON before a library does, which would call itself for each level (ValueError)."""
    for depth, level in enumerate(_levels(schema), 1):
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"it is nested more than {MAX_SCHEMA_DEPTH} deep")
        if any("__fastavro_parsed" in each or "__named_schemas" in each for each in level):
            raise ValueError("it has keys that are fastavro's own")


def check_types(root: AvroType) -> None:
    """Refuse arrays whose items take no bytes, too many values that take none, and depth.

    Raises ValueError: the schema has one.
    """
    _check_depth(root, {}, 1)
    counts: dict[int, int] = {}
    known: dict[int, bool] = {}
    for each in root.reachable():
        if each.kind == "array" and each.items is not None and _takes_no_bytes(each.items, known):
            raise ValueError("an array's items take no bytes, so that its length has no bound")
        if _free_values(each, counts) > MAX_FREE_VALUES:
            raise ValueError(f"more than {MAX_FREE_VALUES} values of it take no bytes")


def is_recursive(root: AvroType) -> bool:
    around: dict[int, bool] = {}  # the types found so far; True inside of one

    def recurs(kind: AvroType) -> bool:
        if id(kind) not in around:
            around[id(kind)] = True
            if any(map(recurs, kind.parts())):
                return True
            around[id(kind)] = False
        return around[id(kind)]

    return recurs(root)


def check_payload(payload: bytes, position: int, root: AvroType) -> None:
    """Walk through a value before it is read.

    Args:
        position: where it begins in the payload.
        root: the writer's schema, which has passed `check_types`.

    Raises:
        ValueError: it is nested too deep, or not a value of the schema.
    """
    _Walk(payload, position).value(root, 0)


def check_nesting(value: Any) -> None:
    """Check a value before it is written. Raises ValueError."""
    for depth, _ in enumerate(_levels(value), 1):
        if depth > 2 * MAX_DEPTH:  # a union's tuples count here, and not in what is written
            raise ValueError(_MESSAGE)


def _levels(value: Any) -> Iterator[list[Any]]:
    """The mappings and lists in a value, level by level; it may contain itself."""
    level = [value]
    while level := [each for each in level if isinstance(each, Mapping | list | tuple)]:
        yield level
        inner = (each.values() if isinstance(each, Mapping) else each for each in level)
        # Each only once, since a value may contain another many times.
        level = list({id(each): each for values in inner for each in values}.values())


class _Walk:
    def __init__(self, payload: bytes, position: int) -> None:
        self._payload = payload
        self._position = position

    def value(self, kind: AvroType, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(_MESSAGE)
        match kind.kind:
            case "union":
                index = self._varint()
                if not 0 <= index < len(kind.branches):
                    raise ValueError(f"a union has no branch {index}")
                self.value(kind.branches[index], depth)
            case "record" | "error":
                for field in kind.fields:
                    self.value(field.type, depth + 1)
            case "array" | "map":
                self._blocks(kind, depth)
            case "bytes" | "string":
                self._skip(self._varint())
            case "int" | "long" | "enum":
                self._varint()
            case "fixed":
                self._skip(kind.size)
            case name:
                self._skip(_SIZES[name])

    def _blocks(self, kind: AvroType, depth: int) -> None:
        assert kind.items is not None
        while count := self._varint():
            if count < 0:
                self._varint()  # the block's size
            for _ in range(abs(count)):
                if kind.kind == "map":
                    self._skip(self._varint())
                self.value(kind.items, depth + 1)

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


# -- schemas ------------------------------------------------------------------------------------


def _check_depth(kind: AvroType, depths: dict[int, int], level: int) -> int:
    if id(kind) not in depths:
        depths[id(kind)] = 0  # within itself: see `check_payload`
        inner = [_check_depth(each, depths, level + 1) for each in kind.parts()]
        depths[id(kind)] = 1 + max(inner, default=0)
    if max(level, depths[id(kind)]) > MAX_TYPE_DEPTH:
        raise ValueError(f"its types are nested more than {MAX_TYPE_DEPTH} deep")
    return depths[id(kind)]


def _takes_no_bytes(kind: AvroType, known: dict[int, bool]) -> bool:
    """Whether a type's values take none; `known` has what was found out about records.

    A union begins with its branch, an array and a map with a count.
    """
    if kind.kind not in RECORDS:
        return _is_free(kind)
    if id(kind) not in known:
        known[id(kind)] = True  # within itself
        known[id(kind)] = all(_takes_no_bytes(each, known) for each in kind.parts())
    return known[id(kind)]


def _free_values(kind: AvroType, counts: dict[int, int]) -> int:
    """How many values of a type take no bytes; `counts` has what is known of records."""
    if kind.kind not in RECORDS:
        return int(_is_free(kind))
    if id(kind) not in counts:
        counts[id(kind)] = 0  # within itself: its values are counted as they are read
        found = sum(_free_values(each, counts) for each in kind.parts())
        counts[id(kind)] = min(max(found, int(not kind.fields)), MAX_FREE_VALUES + 1)
    return counts[id(kind)]


def _is_free(kind: AvroType) -> bool:
    return kind.kind == "null" or (kind.kind == "fixed" and not kind.size)
