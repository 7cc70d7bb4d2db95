"""What the registry lets through, our readers read: as Apache's package does, where it can."""

import io
import json
import warnings
from contextlib import suppress
from typing import Any

import avro.io
import avro.schema
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from hermes.avro.compatibility import reasons_not_to_read
from hermes.avro.json_values import value_to_json
from hermes.avro.parsing import parse_schema
from hermes.avro.reader import AvroReader
from hermes.avro.schema import AvroSchema
from hermes.errors import EncodingError

from .test_compatibility import pairs, types, values


@given(pairs(), st.data())
def test_what_is_compatible_is_read_as_apaches_package_reads_it(pair: Any, data: Any) -> None:
    reader, writer = pair
    schemas = [_usable(writer), _usable(reader)]
    payload = schemas[0].write(data.draw(values(writer, {})))
    reading = AvroReader(*schemas)
    if reasons_not_to_read(parse_schema(reader), parse_schema(writer)):
        try:
            ours = reading.read(payload)
        except EncodingError:
            return
    else:
        ours = reading.read(payload)
    try:
        theirs = _read_by_apache(writer, reader, payload)
    except avro.errors.AvroException:
        return  # it knows no promotion between strings and bytes
    assert _same(ours, theirs), (ours, theirs)


@given(types(), types(), st.lists(st.binary(max_size=30), max_size=5))
def test_any_bytes_are_a_value_or_refused(writer: Any, reader: Any, payloads: list[bytes]) -> None:
    schemas = [_usable(writer), _usable(reader)]
    for reading in (AvroReader(schemas[0]), AvroReader(*schemas)):
        for payload in payloads:
            with suppress(EncodingError):
                value_to_json(reading.read(payload))


def _usable(schema: Any) -> AvroSchema:
    # Unions of nothing have no values; what costs too much is refused.
    assume("[]" not in json.dumps(schema).replace('"fields": []', ""))
    try:
        return AvroSchema(schema)
    except ValueError as error:
        if "no bytes" in str(error):
            reject()
        raise


def _read_by_apache(writer: Any, reader: Any, payload: bytes) -> Any:
    with warnings.catch_warnings(action="ignore"):
        parsed = [avro.schema.parse(json.dumps(each)) for each in (writer, reader)]
    return avro.io.DatumReader(*parsed).read(avro.io.BinaryDecoder(io.BytesIO(payload)))


def _same(ours: Any, theirs: Any) -> bool:
    """Whether both are the same; Apache's leaves promoted numbers and defaults as they are."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(ours, float):
        return repr(ours) == repr(float(theirs))
    if isinstance(ours, bytes) and isinstance(theirs, str):
        return ours in (theirs.encode("latin-1", "ignore"), theirs.encode())
    if isinstance(ours, str) and isinstance(theirs, bytes):
        return ours.encode() == theirs
    return bool(ours == theirs)
