"""Our client against our registry, and our payloads against Confluent's serializers, both ways."""

import datetime
import decimal
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry import SchemaReference as TheirReference
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from registry_server import served_registry

from hermes.errors import EncodingError, IncompatibleSchemaError, UnknownSchemaError
from hermes.plugins.encoders.avro_registry import RegistryAvroEncoder
from hermes.schemas import RegistryClient, SchemaReference
from hermes.schemas.records import RecordReader, RecordWriter


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served_registry() as served:
        yield served


@pytest.fixture
def ours(url: str) -> Iterator[RegistryClient]:
    client = RegistryClient(url)
    yield client
    client.close()


@pytest.fixture
def theirs(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def record(name: str, *fields: Any) -> dict[str, Any]:
    listed = [{"name": each, "type": "int"} if isinstance(each, str) else each for each in fields]
    return {"type": "record", "name": name, "fields": listed}


NEW = {"name": "new", "type": "int", "default": 5}

EVERYTHING = record(
    "acme.Everything",
    {"name": "text", "type": "string"},
    {"name": "maybe", "type": ["null", "double"], "default": None},
    {"name": "raw", "type": "bytes"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "many", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {
        "name": "price",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    },
    {"name": "next", "type": ["null", "acme.Everything"], "default": None},
)
VALUE: dict[str, Any] = {
    "text": "Grüße",
    "maybe": 1.5,
    "raw": b"\x00\xff",
    "kind": "B",
    "many": [{"a": -1}, {}],
    "at": datetime.datetime(2011, 6, 13, 8, tzinfo=datetime.UTC),
    "day": datetime.date(2011, 6, 13),
    "price": decimal.Decimal("12.50"),
    "next": None,
}


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_what_we_write_they_read(ours, theirs) -> None:
    writer = RecordWriter(ours, EVERYTHING)
    nested = {**VALUE, "next": {**VALUE, "text": ""}}
    payload = writer.write("ours", nested)
    assert AvroDeserializer(theirs)(payload, context("ours")) == nested


def test_what_they_write_we_read(ours, theirs) -> None:
    serializer = AvroSerializer(theirs, json.dumps(EVERYTHING))
    payload = serializer(VALUE, context("theirs"))
    assert RecordReader(ours).read(payload) == VALUE
    # The same bytes, as the same schema gets the same id.
    assert RecordWriter(ours, EVERYTHING).write("theirs", VALUE) == payload


@pytest.mark.parametrize("strategy", ["topic", "record", "topic-record"])
def test_subjects_are_theirs(ours, theirs, strategy: str) -> None:
    from confluent_kafka.schema_registry import (
        record_subject_name_strategy,
        topic_record_subject_name_strategy,
        topic_subject_name_strategy,
    )

    names = {
        "topic": topic_subject_name_strategy,
        "record": record_subject_name_strategy,
        "topic-record": topic_record_subject_name_strategy,
    }
    schema = record(f"acme.By_{strategy.replace('-', '_')}", "a")
    options = {"subject.name.strategy": names[strategy]}
    theirs_made = AvroSerializer(theirs, json.dumps(schema), conf=options)
    payload = theirs_made({"a": 1}, context(f"by-{strategy}"))
    before = set(ours.subjects())
    writer = RecordWriter(ours, schema, strategy=strategy)
    assert writer.write(f"by-{strategy}", {"a": 1}) == payload
    assert set(ours.subjects()) == before


def test_evolution_both_ways(ours, theirs) -> None:
    old, new = record("Evolved", "a"), record("Evolved", "a", NEW)
    first = RecordWriter(ours, old).write("evolved", {"a": 1})
    second = AvroSerializer(theirs, json.dumps(new))({"a": 2, "new": 3}, context("evolved"))
    for schema, expected in ((old, [{"a": 1}, {"a": 2}]), (new, [{"a": 1, "new": 5}, None])):
        expected[1] = expected[1] or {"a": 2, "new": 3}
        reader = RecordReader(ours, schema)
        deserializer = AvroDeserializer(theirs, json.dumps(schema))
        for payload, value in zip((first, second), expected, strict=True):
            assert reader.read(payload) == deserializer(payload, context("evolved")) == value
    assert ours.latest("evolved-value").version == 2
    assert ours.versions("evolved-value") == [1, 2]


def test_an_incompatible_schema_is_refused_with_the_place(ours) -> None:
    RecordWriter(ours, record("Strict", "a")).prepare("strict")
    worse = record("Strict", "a", {"name": "b", "type": "string"})
    reasons = ours.incompatibilities("strict-value", json.dumps(worse))
    assert any("Strict.b" in reason for reason in reasons)
    with pytest.raises(IncompatibleSchemaError, match=r"Strict\.b") as caught:
        RecordWriter(ours, worse).prepare("strict")
    assert caught.value.status == 409
    assert ours.incompatibilities("strict-value", json.dumps(record("Strict", "a", NEW))) == []


def test_references_both_ways(ours, theirs) -> None:
    user, event = record("acme.User", "id"), record("acme.Event", {"name": "u", "type": "User"})
    event["fields"].append({"name": "other", "type": ["null", "acme.User"], "default": None})
    ours.register("user", json.dumps(user))
    ours_made = RecordWriter(ours, event, references=[SchemaReference("acme.User", "user", 1)])
    value = {"u": {"id": 1}, "other": {"id": 2}}
    payload = ours_made.write("events", value)
    assert AvroDeserializer(theirs)(payload, context("events")) == value
    schema = Schema(json.dumps(event), "AVRO", [TheirReference("acme.User", "user", 1)])
    assert AvroSerializer(theirs, schema)(value, context("events")) == payload
    assert RecordReader(ours).read(payload) == value
    # Several kinds of records in one topic, by a union of names.
    either = json.dumps(["acme.User", "acme.Event"])
    both = [
        SchemaReference("acme.User", "user", 1), SchemaReference("acme.Event", "events-value", 1)
    ]  # fmt: skip
    mixed = RecordWriter(ours, either, references=both)
    for each in ({"id": 7}, value):
        payload = mixed.write("mixed", each)
        assert RecordReader(ours).read(payload) == each
        assert AvroDeserializer(theirs)(payload, context("mixed")) == each


def test_json_schema_of_theirs(ours, theirs) -> None:
    text = '{"type": "object", "title": "T", "properties": {"a": {"type": "integer"}}}'
    payload = JSONSerializer(text, theirs)({"a": 1}, context("json"))
    assert RecordReader(ours).read(payload) == {"a": 1}
    assert RecordReader(ours).read_as_json(payload) == b'{"a": 1}'


def test_what_is_not_there(ours) -> None:
    for call in (ours.latest, ours.versions):
        with pytest.raises(UnknownSchemaError) as caught:
            call("nowhere")
        assert caught.value.code == 40401
    with pytest.raises(UnknownSchemaError):
        ours.by_id(2**31 - 1)
    ours.register("there", '"int"')
    with pytest.raises(UnknownSchemaError) as caught:
        ours.version("there", 9)
    assert caught.value.code == 40402
    with pytest.raises(UnknownSchemaError) as caught:
        ours.id_of("there", '"string"')
    assert caught.value.code == 40403
    with pytest.raises(EncodingError, match="has no schema 2147483647"):
        RecordReader(ours).read(b"\0\x7f\xff\xff\xff")


def test_a_deleted_schema_can_still_be_read(ours, theirs) -> None:
    payload = RecordWriter(ours, record("Gone", "a")).write("gone", {"a": 1})
    theirs.delete_subject("gone-value")
    assert RecordReader(RegistryClient(ours.name)).read(payload) == {"a": 1}


def test_many_writers_of_one_schema_get_one_id(url) -> None:
    schema = record("Shared", "a")
    start = threading.Barrier(20)

    def write(number: int) -> bytes:
        encoder = RegistryAvroEncoder(url, schema=schema)
        start.wait(60)
        return encoder.encode("shared", {"a": 7})

    with ThreadPoolExecutor(20) as pool:
        assert len(set(pool.map(write, range(20)))) == 1
