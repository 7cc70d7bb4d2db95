"""What Spark's parsers let pass and a schema forbids.

That is required fields that are null, numbers and times out of range, maps with a key twice. Owns
the conditions for every column type, as expressions of Spark; knows no format.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

__all__ = ["Fault", "faults"]

_INFINITIES: Final = (float("inf"), float("-inf"))

# What a timestamp and a date can be in SQL, in Python and in files. Milliseconds that are taken for
# seconds lie beyond the end.
_FIRST, _END = "0001-01-01", "+10000-01-01"


class Fault(NamedTuple):
    """A condition under which a value is a dead letter, and the reason to give."""

    condition: Column
    reason: Column | str


def faults(column: Column, kind: DataType, path: str, *, nullable: bool) -> Iterator[Fault]:
    """List what can be wrong with a column that a parser has filled.

    Args:
        column: the parsed value.
        kind: its type, with `nullable`, `containsNull` and `valueContainsNull` as they are meant.
        path: its name, for the reasons.
        nullable: whether null is right.

    Yields:
        The faults, outer ones first: a condition may be null where an outer fault holds.
    """
    if not nullable:
        yield Fault(column.isNull(), f"{path} is required, but missing or null")
    match kind:
        case StructType():
            for field in kind.fields:
                inner = f"{path}.{field.name}" if path else field.name
                part = column.getField(field.name)
                for fault in faults(part, field.dataType, inner, nullable=field.nullable):
                    # A struct that may be missing takes its required fields with it.
                    there = column.isNotNull() & fault.condition if nullable else fault.condition
                    yield Fault(there, fault.reason)
        case ArrayType():
            yield from _in_elements(column, kind.elementType, f"{path}[]", kind.containsNull)
        case MapType():
            keys = sf.map_keys(column)
            twice = sf.size(sf.array_distinct(keys)) < sf.size(keys)
            yield Fault(twice, f"{path} has a name twice")
            held = sf.map_values(column)
            yield from _in_elements(held, kind.valueType, f"{path}{{}}", kind.valueContainsNull)
        case FloatType() | DoubleType():
            yield Fault(column.isin(*_INFINITIES), f"{path} is out of range")
        case TimestampType() | TimestampNTZType() | DateType():
            first, end = (sf.lit(limit).cast(kind) for limit in (_FIRST, _END))
            yield Fault((column < first) | (column >= end), f"{path} is out of range")


def _in_elements(array: Column, kind: DataType, path: str, nullable: bool) -> Iterator[Fault]:
    # An element's conditions can only be made within a lambda: they are listed once to see how many
    # there are, and once more for each.
    def listed(element: Column) -> list[Fault]:
        return list(faults(element, kind, path, nullable=nullable))

    def condition(number: int) -> Callable[[Column], Column]:
        return lambda element: listed(element)[number].condition

    for number, fault in enumerate(listed(sf.lit(None))):
        yield Fault(sf.exists(array, condition(number)), fault.reason)
