"""What a worker does with Avro: every payload is a value or a dead letter, whatever its bytes."""

import io
import json
import pickle
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from certificates import Certificates
from fake_registry import fake_registry
from hypothesis import example, given
from hypothesis import strategies as st
from planted_secrets import leaks, planted

from hermes.errors import ConfigError, RegistryUnavailableError
from hermes.protocol.stamps import Stamper
from hermes.spark.decoding.avro_values import (
    AvroFormat,
    decode_batch,
    schema_text,
    to_arrow,
    to_spark,
)
from hermes.spark.identity import ClientIdentity

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "text", "type": ["null", "string"]},
        {"name": "kinds", "type": {"type": "array", "items": ["Kind", "null"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "inner",
            "type": [
                "null",
                {"type": "record", "name": "I", "fields": [{"name": "k", "type": "Kind"}]},
            ],
        },
    ],
}
TEXT = schema_text(SCHEMA, "schema")
BARE = AvroFormat(((None, TEXT),), None)
KIND = to_arrow(to_spark(TEXT, "schema"))

values = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "kind": st.sampled_from("ABC"),
        "text": st.none() | st.text(),
        "kinds": st.lists(st.none() | st.sampled_from("ABC")),
        "counts": st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1)),
        "day": st.dates(),
        "inner": st.none() | st.fixed_dictionaries({"k": st.sampled_from("ABC")}),
    }
)


def encoded(value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA, named_schemas={}), value)
    return buffer.getvalue()


def outcomes(payloads: list[bytes | None], rules: AvroFormat = BARE) -> list[Any]:
    array = decode_batch(payloads, rules, KIND)
    assert array.type == pa.struct([("value", KIND), ("reason", pa.string())])
    found = array.to_pylist(maps_as_pydicts="strict")
    assert len(found) == len(payloads)
    assert all((row["value"] is None) != (row["reason"] is None) for row in found)
    return [row["reason"] if row["value"] is None else row["value"] for row in found]


@given(st.lists(values, max_size=4))
def test_what_was_written_comes_back(written: list[Any]) -> None:
    assert outcomes([encoded(value) for value in written]) == written


@given(st.lists(st.none() | st.binary(max_size=40), max_size=6), values)
def test_any_bytes_are_a_value_or_a_dead_letter(payloads: list[bytes | None], good: Any) -> None:
    assert outcomes([*payloads, encoded(good)])[-1] == good


@given(values, st.data())
def test_a_value_cut_short_or_with_more_behind_it_is_a_dead_letter(good: Any, data: Any) -> None:
    whole = encoded(good)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    longer = whole + data.draw(st.binary(min_size=1, max_size=5))
    assert all(isinstance(outcome, str) for outcome in outcomes([cut, longer]))


@given(st.integers(-(2**63), 2**63 - 1).filter(lambda index: not 0 <= index < 3))
@example(-(2**63))
@example(-(2**63) + 1)
@example(-1)
def test_an_index_that_the_schema_does_not_have(index: int) -> None:
    """In enums and unions; negative ones too, which fastavro lets pass."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, {"type": "long"}, index)
    bad = buffer.getvalue()
    payloads = [
        b"\0" + bad + bytes(5),
        b"\0\0" + bad + bytes(4),
        b"\0\0\0\2" + bad + bytes(4),
        b"\0\0\0\2\0" + bad + bytes(4),
        bytes(6) + bad,
        bytes(6) + b"\2" + bad,
    ]
    for outcome in outcomes(payloads):
        assert outcome.startswith("not a value of the schema: IndexError: ")


@pytest.mark.parametrize("number", [0, 2**31 - 1])
def test_the_framing(number: int) -> None:
    rules = AvroFormat(((number, TEXT),), TEXT)
    framed = b"\0" + number.to_bytes(4, "big") + bytes(7)
    (value, *others) = outcomes([framed, framed[1:], b"\0" * 4, b"", None], rules)
    assert (value["i"], value["kind"]) == (0, "A")
    assert others[-2:] == ["the value is empty", "the value is null"]
    assert len(others) == 4


def test_a_schema_travels_as_text() -> None:
    assert json.loads(TEXT) == SCHEMA
    assert schema_text(json.dumps(SCHEMA), "schema") == TEXT


def test_a_decimal_without_a_precision_is_refused() -> None:
    field = {"name": "d", "type": {"type": "bytes", "logicalType": "decimal"}}
    with pytest.raises(ConfigError, match="schema: d: decimal as bytes is not supported"):
        schema_text({"type": "record", "name": "R", "fields": [field]}, "schema")


def test_arrays_of_nothing_are_refused() -> None:
    nothing = {"type": "fixed", "name": "F", "size": 0}
    schema = json.loads(TEXT)
    schema["fields"].append({"name": "a", "type": {"type": "array", "items": nothing}})
    with pytest.raises(ConfigError, match="take no bytes"):
        schema_text(schema, "schema")


def test_a_registry_has_the_writers_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_registry() as registry:
        number = registry.add("s", json.dumps(SCHEMA)).to_bytes(4, "big")
        more = [*SCHEMA["fields"][:1], {"name": "n", "type": "long", "default": 7}]
        reader = json.dumps({**SCHEMA, "fields": more})
        kind = to_arrow(to_spark(reader, "schema"))
        rules = AvroFormat((), reader, registry.url)
        registry.add("s", '{"type": "record", "name": "Other", "fields": []}')
        registry.add("s", '{"type": "object"}', "JSON")
        good = b"\0" + number + b"\2" + bytes(6)
        payloads = [good, b"\0\0\0\0\2", b"\0\0\0\0\3{}", b"\0\0\0\0\x63", good[:-1], b"x", good]
        found = decode_batch(payloads, rules, kind).to_pylist()
        assert [row["value"] for row in found[::6]] == [{"i": 1, "n": 7}] * 2
        reasons = [str(row["reason"]) for row in found[1:6]]
        assert reasons[0].startswith("written with schema 2: not a value of the schema: Schema")
        assert reasons[1] == "schema 3 is of type JSON, not Avro"
        assert reasons[2].endswith("has no schema 99")
        assert reasons[3].startswith("written with schema 1: not a value of the schema: EOFError")
        assert reasons[4] == "the payload doesn't start with 0 and a schema id"
        asked = len(registry.asked)
        decode_batch(payloads, rules, kind)
        assert len(registry.asked) == asked
        # A value that nobody can read for now is no dead letter.
        monkeypatch.setattr("hermes.spark.decoding.avro_values._REGISTRY_SECONDS", 0.0)
        elsewhere = rules._replace(registry=f"{registry.url}/x")
        registry.faults = [503]
        with pytest.raises(RegistryUnavailableError, match="503"):
            decode_batch(payloads, elsewhere, kind)


def test_recursive_records_of_a_writer_are_left_out() -> None:
    recursive = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "r", "type": ["null", "R"]}, {"name": "i", "type": "int"}],
    }
    reader = json.dumps({"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}]})
    kind = to_arrow(to_spark(reader, "schema"))
    with fake_registry() as registry:
        registry.add("s", json.dumps(recursive))
        rules = AvroFormat((), reader, registry.url)
        payloads = [bytes.fromhex("0000000001 02 00 04 06"), b"\0\0\0\0\1" + b"\2" * 1_000_000]
        payloads += Stamper(1, "host").stamped(payloads[:1], 0)  # by an audited producer
        found = decode_batch(payloads, rules, kind).to_pylist()
    assert found[0]["value"] == found[2]["value"] == {"i": 3}
    assert "nested more than 200 deep" in found[1]["reason"]


def test_a_registry_is_asked_as_somebody(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    (tmp_path / "password").write_text(planted("me"))
    me = ClientIdentity(
        tls_ca=str(certificates.ca), user="me", password_file=str(tmp_path / "password")
    )
    with fake_registry(context) as registry:
        number = registry.add("s", json.dumps(SCHEMA)).to_bytes(4, "big")
        kind = to_arrow(to_spark(TEXT, "schema"))
        rules = AvroFormat((), TEXT, registry.url, (), me)
        assert not leaks(repr(rules))
        assert not leaks(pickle.dumps(rules))
        payload = b"\0" + number + b"\2" + bytes(6)
        (found,) = decode_batch([payload], rules, kind).to_pylist()
        assert found["reason"] is None
        assert b64decode(registry.headers["Authorization"].split()[1]).startswith(b"me:")
