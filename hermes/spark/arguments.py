"""What functions on DataFrames check of their arguments before Spark sees them.

Spark's own errors name attributes and plans; these name the argument, and come while the plan is
made. Knows the names and types of columns and how durations are written; reads no data.
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, TimestampNTZType, TimestampType

from hermes.config.units import parse_duration
from hermes.errors import ConfigError

#: `30s`, `10m`, `1h30m`, `7d`; Spark's `10 minutes`; or a timedelta.
Duration = str | timedelta

_WORDS: Final = {
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}


def named(name: str) -> Column:
    """The column of exactly this name, whatever characters it has."""
    return sf.col(f"`{name.replace('`', '``')}`")


def unguessable_name() -> str:
    """A name that no value holds and no DataFrame has."""
    return f"hermes_{secrets.token_hex(8)}"


def column_type(
    df: DataFrame, name: str, argument: str, types: tuple[type[DataType], ...], expected: str
) -> DataType:
    """Look up a column that exists once, of one of the types; else ConfigError names `argument`."""
    found = [field.dataType for field in df.schema.fields if field.name == name]
    if len(found) != 1:
        what = "there are several columns" if found else "there is no column"
        raise ConfigError(argument, f"{what} {name!r}; there are {', '.join(df.columns)}")
    if not isinstance(found[0], types):
        raise ConfigError(
            argument,
            f"expected {expected}, but the column {name!r} is {found[0].simpleString()}",
        )
    return found[0]


def require_time(df: DataFrame, name: str, argument: str) -> None:
    column_type(df, name, argument, (TimestampType, TimestampNTZType), "a timestamp")


def require_columns(
    df: DataFrame, names: str | Sequence[str], argument: str, *, least: int = 0
) -> list[str]:
    """Check that columns exist, each named once. Raises ConfigError."""
    listed = [names] if isinstance(names, str) else list(names)
    if len(listed) < least or len(set(listed)) < len(listed):
        raise ConfigError(argument, f"expected names of columns, each once, got {listed!r}")
    for name in listed:
        column_type(df, name, argument, (DataType,), "a column")
    return listed


def require_new(columns: Iterable[str], name: str, argument: str) -> None:
    """Check that a name is still free; Spark ignores case. Raises ConfigError."""
    if not name or name.lower() in {column.lower() for column in columns}:
        raise ConfigError(argument, f"there is a column {name!r} already; choose another name")


def as_ms(value: Duration, argument: str, *, least_ms: int = 0) -> int:
    """Read a duration. A month has no fixed length, and is a ConfigError."""
    try:
        if isinstance(value, timedelta):
            ms, rest = divmod(value, timedelta(milliseconds=1))
            if rest:
                raise ValueError(f"{value!r} is finer than 1ms")
        else:
            ms = parse_duration(_in_units(value))
    except ValueError as error:
        raise ConfigError(argument, str(error)) from error
    if ms < least_ms:
        raise ConfigError(argument, f"expected at least {least_ms} ms, got {value!r}")
    return ms


def as_interval(duration_ms: int) -> str:
    return f"{duration_ms} milliseconds"


def _in_units(value: object) -> object:
    """Turn Spark's `1 hour 30 minutes` into `1h 30m`; leave everything else as it is."""
    if not isinstance(value, str):
        return value
    words = value.split()
    units = [_WORDS.get(word.lower().removesuffix("s")) for word in words[1::2]]
    if len(words) < 2 or len(words) % 2 or None in units:
        return value
    return " ".join(f"{number}{unit}" for number, unit in zip(words[::2], units, strict=True))
