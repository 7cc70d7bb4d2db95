r"""JSON objects into columns, inside the JVM.

Spark's `from_json` is lenient: it stops silently where the object ends (`{"a": 1} rubbish`),
returns what it could read of a record, with nulls for what it couldn't, ignores that a field is
required, turns 1e999 into infinity, and replaces bytes that aren't UTF-8. So the text is parsed
within an envelope,

    {"<name>v": [<the value>, {"<name>e": true}]}

whose names nobody can guess. Anything but exactly one JSON value breaks the envelope, the number of
its elements, or its end. What `from_json` calls corrupt is a dead letter as a whole, and so is what
`dead_letters.faults` finds afterwards.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from hermes.errors import ConfigError
from hermes.spark.arguments import named, unguessable_name
from hermes.spark.decoding.dead_letters import (
    DEAD_LETTER,
    DECODED,
    NULL_VALUE,
    Fault,
    bytes_of,
    check_columns,
    faults,
    first_reason,
    with_outcome,
)

# Strict JSON; what Spark would allow unless told otherwise.
_STRICT: Final = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_OPTIONS: Final = ("dateFormat", "locale", "timeZone", "timestampFormat", "timestampNTZFormat")

# Half of an escaped surrogate pair isn't a character, and Spark would write `?` for it. Escaped
# backslashes and whole pairs are removed before the search for halves.
_SURROGATE: Final = r"\\u[dD][89a-fA-F]"
_WHOLE: Final = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"


def decode_json(
    df: DataFrame,
    schema: StructType | str,
    *,
    column: str = "value",
    into: str = DECODED,
    dead_letter: str = DEAD_LETTER,
    options: Mapping[str, str] | None = None,
    unique_names: bool = False,
) -> DataFrame:
    """Decode JSON objects.

    Accepted are: fields in any order, further fields (they are ignored), missing fields and nulls
    where the schema allows null, space around the object, any JSON value where the schema has a
    string (numbers, objects and arrays become their text), a number with more decimals than a
    `decimal` (it is rounded), a number for a timestamp (seconds since 1970), a repeated name (the
    last counts, unless `unique_names`).

    Dead letters are: a null or empty value, bytes that aren't UTF-8, anything but exactly one JSON
    object (truncated, with trailing text, `null`, an array), JSON that isn't strict (single quotes,
    comments, NaN), half a surrogate pair, a field of another type than the schema's (`"1"`, `1.0`
    and `1e3` aren't integers, `"true"` isn't a boolean) or that the type can't hold (an integer or
    a decimal with too many digits, a double or float that would be infinite, a date or timestamp
    outside the years 1 to 9999), a required field (`not null`) that is missing or null, at any
    depth, a map with a key twice. A record with one bad field is a dead letter as a whole.

    Example:
        schema = "page string not null, member string, time timestamp not null"
        clicks = decode_json(spark.read.format("hermes").options(...).load(), schema)
        good, dead = split_dead_letters(clicks)
        good.select("topic", "offset", "decoded.*").show()

    Args:
        schema: of the object: a `StructType`, or DDL as in the example.
        column: the binary or string column that holds the JSON.
        into: the name of the column with the decoded struct.
        dead_letter: the name of the column with the reason.
        options: Spark's `dateFormat`, `timestampFormat`, `timestampNTZFormat`, `timeZone` and
            `locale`. Times are ISO 8601 unless a format is given.
        unique_names: make a value in which one object, at any depth, has a name twice a dead
            letter. This parses once more, and takes half as long again.

    Returns:
        `df` with two more columns: `into`, null for dead letters, and `dead_letter`, null for
        good values. To Spark the decoded fields are nullable; in good rows required ones are
        never null.

    Raises:
        ConfigError: an argument is wrong; the text names it.
    """
    check_columns(df, column, into, dead_letter)
    wanted = struct_schema(schema)
    temporary = unguessable_name()
    envelope = _Envelope(temporary, wanted)
    text = bytes_of(column).cast(StringType())
    parsed = df.withColumn(temporary, envelope.parse(text, _checked(options)))
    element = envelope.element(named(temporary))
    found = [
        *_before_parsing(column, text),
        *envelope.faults(named(temporary), text),
        Fault(_has_half_pair(text), "half of a surrogate pair"),
        *faults(element, wanted, "", nullable=True),
    ]
    if unique_names:
        twice = sf.try_parse_json(text).isNull()
        found.append(Fault(twice, "a name comes twice, or the object is too large to tell"))
    result = with_outcome(
        parsed,
        envelope.value(named(temporary)),
        first_reason(found),
        into=into,
        dead_letter=dead_letter,
    )
    return result.drop(temporary)


def struct_schema(schema: StructType | str) -> StructType:
    """Read a schema argument: a StructType, or DDL. ConfigError unless it has fields, each once."""
    wanted: Any = schema
    if isinstance(schema, str):
        try:
            wanted = StructType.fromDDL(schema)
        except Exception as error:  # ParseException, of one kind in Connect and of another here
            raise ConfigError("schema", f"no DDL: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(wanted, StructType) or not wanted.fields:
        raise ConfigError("schema", f"expected a StructType or DDL with fields, got {schema!r}")
    if len({name.lower() for name in wanted.names}) < len(wanted.names):
        raise ConfigError("schema", "a field comes twice (upper and lower case are the same)")
    return wanted


def _before_parsing(column: str, text: Column) -> Iterator[Fault]:
    yield Fault(named(column).isNull(), NULL_VALUE)
    yield Fault(~sf.is_valid_utf8(text), "the value is not UTF-8")
    yield Fault(sf.trim(text, sf.lit(" \t\r\n")) == "", "the value is empty")


def _has_half_pair(text: Column) -> Column:
    rest = sf.regexp_replace(text, _WHOLE, " ")
    return text.rlike(_SURROGATE) & rest.rlike(_SURROGATE)


def _at(text: Column, name: Column) -> Column:
    """The JSON of a field; null where it is missing or null."""
    path = sf.concat(sf.lit("$['"), name, sf.lit("']"))
    return sf.call_function("get_json_object", text, path)


def _checked(options: Mapping[str, str] | None) -> dict[str, str]:
    for key in options or {}:
        if key not in _OPTIONS:
            raise ConfigError(f"options.{key}", f"unknown; there are {', '.join(_OPTIONS)}")
    return {**(options or {}), **_STRICT}


class _Envelope:
    """What surrounds a value while it is parsed, so that nothing next to it goes unnoticed."""

    def __init__(self, name: str, wanted: StructType) -> None:
        self._values, self._end, self._corrupt = f"{name}v", f"{name}e", f"{name}c"
        self._wanted = wanted
        element = StructType([*wanted.fields, StructField(self._end, BooleanType())])
        self._schema = StructType(
            [
                StructField(self._values, ArrayType(element)),
                StructField(self._corrupt, StringType()),
            ]
        )

    def parse(self, text: Column, options: Mapping[str, str]) -> Column:
        opening, closing = f'{{"{self._values}":[', f',{{"{self._end}":true}}]}}'
        all_options = {**options, "columnNameOfCorruptRecord": self._corrupt}
        enclosed = sf.concat(sf.lit(opening), text, sf.lit(closing))
        return sf.from_json(enclosed, self._schema, all_options)

    def element(self, parsed: Column) -> Column:
        """The value as it was parsed; null unless it is an object."""
        return sf.get(parsed.getField(self._values), 0)

    def value(self, parsed: Column) -> Column:
        return self.element(parsed).dropFields(self._end)

    def faults(self, parsed: Column, text: Column) -> Iterator[Fault]:
        values = parsed.getField(self._values)
        end = sf.get(values, 1).getField(self._end)
        one = (sf.size(values) == 2) & sf.coalesce(end, sf.lit(False))
        corrupt = parsed.getField(self._corrupt).isNotNull()
        # A field of a wrong type leaves the rest of the envelope intact.
        yield Fault(corrupt & one & self.element(parsed).isNotNull(), self._misfit(parsed, text))
        yield Fault(corrupt | ~sf.coalesce(one, sf.lit(False)), "not exactly one JSON object")
        yield Fault(self.element(parsed).isNull(), "the JSON value is null")

    def _misfit(self, parsed: Column, text: Column) -> Column:
        """Name the fields that are present but could not be read; evaluated for bad rows only."""
        types = sf.create_map(
            *(
                sf.lit(part)
                for field in self._wanted.fields
                for part in (field.name, field.dataType.simpleString())
            )
        )
        kept = sf.to_json(self.element(parsed), {"ignoreNullFields": "true"})
        lost = sf.filter(
            sf.array_except(sf.json_object_keys(text), sf.json_object_keys(kept)),
            lambda name: sf.map_contains_key(types, name) & _at(text, name).isNotNull(),
        )
        said = sf.transform(
            lost, lambda name: sf.concat(name, sf.lit(" is not a valid "), types[name])
        )
        listed = sf.array_join(said, "; ")
        return sf.when(listed != "", listed).otherwise("a nested field is of another type")
