"""What the end of a Parquet file says of its columns, as Delta's logs have it: for skipping files.

Smallest and largest values, and how many are null, for columns and the fields of structs. Nothing
is read but the file's footer. What it doesn't say for every row group is left out, which costs a
reader no more than opening the file. Source: "Per-file Statistics" of Delta's protocol.
"""

import datetime
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["file_statistics"]

# As Delta's own writers: a prefix of this length says enough of a text.
_TEXT_CHARACTERS: Final = 32
_LARGEST_CHARACTER: Final = "\U0010ffff"


def file_statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """`numRecords` and, where the footer says, `minValues`, `maxValues`, `nullCount` by columns."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows}
    if not metadata.num_row_groups:
        return found
    for path, leaf in _leaves(metadata.schema.to_arrow_schema()):
        chunks = [
            metadata.row_group(group).column(leaf).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not all(each is not None and each.has_null_count for each in chunks):
            continue
        _put(found, "nullCount", path, sum(each.null_count for each in chunks))
        filled = [each for each in chunks if each.num_values]
        if filled and all(each.has_min_max for each in filled):
            try:
                smallest = _smallest(min(each.min for each in filled))
                largest = _largest(max(each.max for each in filled))
            except (OverflowError, TypeError, ValueError):
                continue  # beyond what Python's types hold, as the year 10000
            if smallest is not None and largest is not None:
                _put(found, "minValues", path, smallest)
                _put(found, "maxValues", path, largest)
    return found


def _leaves(fields: Any) -> Iterator[tuple[tuple[str, ...], int]]:
    """The columns of a file that are in no list or map: their names, and their numbers."""
    position = 0
    for field in fields:
        if pa.types.is_struct(field.type):
            for names, leaf in _leaves(field.type):
                yield (field.name, *names), position + leaf
        elif not pa.types.is_nested(field.type):
            yield (field.name,), position
        position += _width(field.type)


def _width(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_width(kind.field(number).type) for number in range(kind.num_fields))


def _put(found: dict[str, Any], what: str, path: tuple[str, ...], value: object) -> None:
    place = found.setdefault(what, {})
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = value


def _smallest(value: object) -> object:
    return value[:_TEXT_CHARACTERS] if isinstance(value, str) else _plain(value)


def _largest(value: object) -> object:
    if not isinstance(value, str):
        return _plain(value)
    if len(value) <= _TEXT_CHARACTERS:
        return value
    if value[_TEXT_CHARACTERS] == _LARGEST_CHARACTER:
        return None  # nothing that is as short is larger
    return value[:_TEXT_CHARACTERS] + _LARGEST_CHARACTER


def _plain(value: object) -> object:
    """A value as JSON has it; None for those that readers don't compare, or JSON can't hold."""
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    # Of numbers only whole ones: NaN, the largest to Spark, may be missing in a file's statistics.
    return value if isinstance(value, int) and not isinstance(value, bool) else None
