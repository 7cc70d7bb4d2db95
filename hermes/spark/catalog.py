"""Tables of a catalog: `CREATE TABLE clicks USING hermes OPTIONS (...)`.

Spark shows the options to the source only while the table is created, among keys of its own:
whoever reads or writes the table later gets its columns, and the options of that query alone. So
they are kept where Spark keeps the columns, as metadata of the first one. A table that was created
with a list of columns, or by AS SELECT, has never shown its options to anybody, and can't be used.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from hermes.errors import ConfigError
from hermes.spark.columns import nullable, spark_schema
from hermes.spark.options import ADDRESS_OPTIONS, SOURCE_OPTIONS, ExtraColumns, SourceOptions
from hermes.spark.sink_options import SINK_OPTIONS, SinkOptions

_METADATA: Final = "hermes.options"

# What Spark adds when a table is created; what its OPTIONS said stands once more behind the prefix.
_ADDED: Final = frozenset({"owner", "provider"})
_PREFIX: Final = "option."

_READ: Final = frozenset(option.name.lower() for option in SOURCE_OPTIONS)
_WRITE: Final = frozenset(option.name.lower() for option in SINK_OPTIONS)

#: The columns of a table that say where a message is: a write doesn't choose that.
PLACES: Final = frozenset(spark_schema(ExtraColumns(timestamp=True)).names) - {"topic", "value"}


def new_table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being created; None for any other use. Raises ConfigError."""
    names = {name.lower(): text for name, text in given.items()}
    if not names.keys() >= _ADDED:
        return None
    options = {
        name.removeprefix(_PREFIX): text for name, text in names.items() if name.startswith(_PREFIX)
    }
    if "password" in options:
        raise ConfigError(
            "password",
            "a table's options are stored where many can read them: use passwordFile, or "
            "HERMES_PASSWORD in the environment of the driver and the executors",
        )
    SinkOptions.parse(to_write(options), stream=False)
    return options


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table, with its options; nullable, since INSERT leaves out most of them."""
    first = schema.fields[0]
    kept = StructField(first.name, first.dataType, True, {_METADATA: json.dumps(options)})
    return nullable(StructType([kept, *schema.fields[1:]]))


def options_of(schema: StructType) -> dict[str, str]:
    """The options of the table whose columns these are; none if they aren't a table's."""
    text = schema.fields[0].metadata.get(_METADATA) if schema.fields else None
    options: dict[str, str] = json.loads(text) if text else {}
    return options


def names_brokers(given: Mapping[str, str]) -> bool:
    """Whether options say by themselves where to write, so that no table's are meant.

    Rows that come from one table still have its metadata when they are written elsewhere.
    """
    addresses = {option.name.lower() for option in ADDRESS_OPTIONS}
    return any(name.lower() in addresses for name in given)


def without_options(schema: StructType) -> StructType:
    fields = [StructField(each.name, each.dataType, each.nullable) for each in schema.fields]
    return StructType(fields)


def to_read(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that don't concern writing only."""
    only_write = _WRITE - _READ
    return {name: text for name, text in options.items() if name.lower() not in only_write}


def to_write(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that concern writing: rows go to the topic that it reads."""
    read = SourceOptions.parse(to_read(options), None)
    found = {name: text for name, text in options.items() if name.lower() in _WRITE}
    if len(read.selection.topics) == 1:
        found.setdefault("topic", read.selection.topics[0])
    return found


def require_options(options: Mapping[str, str]) -> None:
    """Raise the ConfigError that explains why there are none, if so."""
    if not options:
        raise ConfigError(
            "OPTIONS",
            "Spark keeps none for a table that is created with a list of columns, or AS SELECT: "
            "use CREATE TABLE name USING hermes OPTIONS (...), without columns, then INSERT INTO",
        )
