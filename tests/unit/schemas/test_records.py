"""Payloads with a schema's id: literal bytes, subjects, evolution, and what can't be read."""

import json
import struct
from typing import Any

import pytest

from hermes.errors import (
    ConfigError,
    EncodingError,
    IncompatibleSchemaError,
    RegistryUnavailableError,
    UnknownSchemaError,
)
from hermes.schemas import RegistryClient, SchemaReference
from hermes.schemas.framing import header, is_framed, schema_id_of
from hermes.schemas.records import RecordReader, RecordWriter, references_of
from hermes.schemas.subjects import subject_of

CLICK = {
    "type": "record",
    "name": "acme.Click",
    "fields": [{"name": "page", "type": "string"}],
}
NEWER = {
    "type": "record",
    "name": "acme.Click",
    "fields": [*CLICK["fields"], {"name": "count", "type": "int", "default": 1}],
}


def test_the_framing() -> None:
    assert header(258) == bytes.fromhex("0000000102")
    assert header(2**31 - 1) == bytes.fromhex("007fffffff")
    assert schema_id_of(bytes.fromhex("0000000102ff")) == 258
    assert is_framed(bytes(5))
    for wrong in (b"", bytes(4), b"\x01" + bytes(4), b"\x00\x80" + bytes(3)):
        assert not is_framed(wrong)
        with pytest.raises(EncodingError, match="doesn't start with 0 and a schema id"):
            schema_id_of(wrong)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("topic", "clicks-value"),
        ("record", "acme.Click"),
        ("topic-record", "clicks-acme.Click"),
    ],
)
def test_subjects(registry, client, strategy: str, subject: str) -> None:
    writer = RecordWriter(client, CLICK, strategy=strategy)
    assert writer.write("clicks", {"page": "/"}) == bytes.fromhex("0000000001 022f")
    assert list(registry.subjects) == [subject]


def test_a_subject_may_be_given(registry, client) -> None:
    writer = RecordWriter(client, CLICK, subject="mine", strategy="record")
    writer.write("clicks", {"page": "/"})
    assert list(registry.subjects) == ["mine"]


def test_wrong_strategies(client) -> None:
    with pytest.raises(ConfigError, match="subject_strategy: expected one of topic, record, topic"):
        RecordWriter(client, CLICK, strategy="nothing")
    with pytest.raises(ConfigError, match="needs a schema with a name"):
        RecordWriter(client, '"string"', strategy="record")
    with pytest.raises(ValueError, match="needs a schema with a name"):
        subject_of("topic-record", "t", None)
    assert RecordWriter(client, '"string"').write("t", "a") == bytes.fromhex("0000000001 0261")


def test_a_topic_asks_once(registry, client) -> None:
    writer = RecordWriter(client, CLICK)
    for topic in ("a", "b", "a", "b"):
        writer.write(topic, {"page": "/"})
    assert [path for _, path in registry.asked] == [
        "/subjects/a-value/versions",
        "/subjects/b-value/versions",
    ]


def test_a_schema_that_may_not_be_registered(registry, client) -> None:
    writer = RecordWriter(client, CLICK, may_register=False)
    with pytest.raises(UnknownSchemaError, match="Subject 'clicks-value' not found"):
        writer.write("clicks", {"page": "/"})
    registry.add("clicks-value", '"null"')
    registry.add("clicks-value", json.dumps(CLICK))
    assert writer.prepare("clicks") == 2
    assert writer.write("clicks", {"page": "/"})[:5] == header(2)


def test_a_schema_that_does_not_fit(registry, client) -> None:
    registry.incompatible = "field page, at /fields/0"
    writer = RecordWriter(client, CLICK)
    with pytest.raises(IncompatibleSchemaError, match="field page, at /fields/0"):
        writer.write("clicks", {"page": "/"})
    with pytest.raises(ConfigError, match="schema: not an Avro schema"):
        RecordWriter(client, {"type": "recrod"})


def test_values_that_do_not_fit(registry, client) -> None:
    writer = RecordWriter(client, CLICK)
    for wrong in ({}, {"page": 7}, {"page": "/", "pgae": "/"}, None):
        with pytest.raises(EncodingError, match="does not fit the schema"):
            writer.write("clicks", wrong)
    assert registry.asked == []


def test_values_are_read_as_written_or_as_wanted(registry, client) -> None:
    first = RecordWriter(client, CLICK).write("clicks", {"page": "/"})
    second = RecordWriter(client, NEWER).write("clicks", {"page": "/", "count": 2})
    plain, newer, older = (RecordReader(client, each) for each in (None, NEWER, json.dumps(CLICK)))
    assert [plain.read(first), plain.read(second)] == [{"page": "/"}, {"page": "/", "count": 2}]
    assert [newer.read(first), newer.read(second)] == [
        {"page": "/", "count": 1},
        {"page": "/", "count": 2},
    ]
    assert [older.read(first), older.read(second)] == [{"page": "/"}] * 2
    assert newer.read_as_json(first) == b'{"page": "/", "count": 1}'
    asked = [path for method, path in registry.asked if method == "GET"]
    assert asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_types_of_other_subjects(registry, client) -> None:
    registry.add("user", json.dumps({**CLICK, "name": "acme.User"}))
    visit = {
        "type": "record",
        "name": "acme.Visit",
        "fields": [{"name": "user", "type": "User"}, {"name": "friend", "type": ["null", "User"]}],
    }
    references = references_of([{"name": "acme.User", "subject": "user", "version": 1}])
    writer = RecordWriter(client, visit, references=references)
    value = {"user": {"page": "/"}, "friend": {"page": "x"}}
    payload = writer.write("visits", value)
    assert payload == bytes.fromhex("0000000002 022f 02 0278")
    assert registry.by_id[2]["references"] == [references[0]._asdict()]
    assert RecordReader(client).read(payload) == value
    either = json.dumps(["acme.User", "acme.Visit"])
    both = [references[0], SchemaReference("acme.Visit", "visits-value", 1)]
    several = RecordWriter(client, either, subject="all", references=both)
    payload = several.write("all", value)
    assert payload == bytes.fromhex("0000000003 02 022f 02 0278")
    assert RecordReader(client).read(payload) == value
    with pytest.raises(ConfigError, match="references: expected name, subject and version"):
        references_of([{"name": "x"}])


def test_what_can_not_be_read_says_why(registry, client) -> None:
    good = RecordWriter(client, CLICK).write("clicks", {"page": "/"})
    registry.add("proto", "syntax", "PROTOBUF")
    registry.add("broken", '{"type": "recrod"}')
    registry.add("lost", '"acme.Gone"', references=[{"name": "x", "subject": "x", "version": 1}])
    expected = {
        b"": "doesn't start with 0 and a schema id",
        b"{}": "doesn't start with 0 and a schema id",
        good[:-1]: "written with schema 1: not a value of the schema: ",
        good + b"x": "written with schema 1: 1 bytes follow the value",
        header(2) + b"x": "schema 2 is of type PROTOBUF, not Avro",
        header(3) + b"x": "schema 3 can't be used: not an Avro schema: ",
        header(4) + b"x": "Subject 'x' not found",
        header(99) + b"x": "has no schema 99",
    }
    reader = RecordReader(client)
    for _ in range(2):
        for payload, message in expected.items():
            with pytest.raises(EncodingError, match=message):
                reader.read(payload)
        assert reader.read(good) == {"page": "/"}


def test_what_the_registry_keeps_to_itself_is_no_fault_of_the_payload(registry) -> None:
    number = registry.add("s", json.dumps(CLICK))
    client = RegistryClient(registry.url, retry_seconds=0)
    reader = RecordReader(client)
    registry.faults = [503]
    with pytest.raises(RegistryUnavailableError, match="503"):
        reader.read(header(number) + b"\x02/")
    assert reader.read(header(number) + b"\x02/") == {"page": "/"}
    client.close()


def test_an_id_that_becomes_known(registry, client, monkeypatch) -> None:
    reader = RecordReader(client)
    with pytest.raises(EncodingError, match="has no schema 1"):
        reader.read(header(1) + b"\x02/")
    registry.add("s", json.dumps(CLICK))
    monkeypatch.setattr("hermes.schemas.registry_client._UNKNOWN_SECONDS", 0.0)
    assert reader.read(header(1) + b"\x02/") == {"page": "/"}


def test_json_schema(registry, client) -> None:
    number = registry.add("s", '{"type": "object"}', "JSON")
    payload = header(number) + b'{"a": [1]}'
    assert RecordReader(client).read(payload) == {"a": [1]}
    with pytest.raises(EncodingError, match=f"written with schema {number}, but not JSON"):
        RecordReader(client).read(header(number) + b"{")
    with pytest.raises(EncodingError, match="of type JSON, not Avro"):
        RecordReader(client, CLICK).read(payload)


def test_a_wrong_readers_schema(client) -> None:
    for wrong in ({"type": "recrod"}, "{", 7):
        with pytest.raises(ConfigError, match="reader_schema: not an Avro schema"):
            RecordReader(client, wrong)


def test_a_hostile_registry_costs_no_more_than_a_dead_letter(registry, client) -> None:
    deep: Any = "null"
    for number in range(40):
        fields = [{"name": "a", "type": deep}, {"name": "b", "type": deep}]
        name = f"R{number}"
        if isinstance(deep, dict):
            fields[1]["type"] = deep["name"]
        deep = {"type": "record", "name": name, "fields": fields}
    recursive = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    texts = [
        json.dumps(deep),
        '{"type":"array","items":' * 50_000 + '"int"' + "}" * 50_000,
        json.dumps({"type": "array", "items": "null"}),
        json.dumps(recursive),
    ]
    reader = RecordReader(client)
    skipping = RecordReader(client, {"type": "record", "name": "L", "fields": []})
    for text in texts:
        payload = struct.pack(">bi", 0, registry.add("s", text)) + b"\x02" * 200_000
        for each in (reader, skipping):
            with pytest.raises(EncodingError):
                each.read(payload)
