"""Avro by a registry: every version in the same columns, and what the registry can't tell."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fake_registry import FakeRegistry, fake_registry

from hermes.errors import ConfigError, RegistryUnavailableError, UnknownSchemaError
from hermes.plugins.encoders.avro_registry import RegistryAvroEncoder
from hermes.spark.decoding import decode_registry_avro, split_dead_letters

USER = {"type": "record", "name": "acme.User", "fields": [{"name": "id", "type": "long"}]}
FIRST = {
    "type": "record",
    "name": "acme.Click",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "user", "type": ["null", "acme.User"], "default": None},
        {"name": "old", "type": ["int", "string"], "default": 0},
    ],
}
SECOND = {
    "type": "record",
    "name": "acme.Click",
    "fields": [*FIRST["fields"][:2], {"name": "count", "type": "int", "default": 1}],
}
REFERENCES = [{"name": "acme.User", "subject": "users", "version": 1}]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as served:
        served.add("users", json.dumps(USER))
        yield served


def frame_of(spark: Any, values: list[bytes | None]) -> Any:
    return spark.createDataFrame(list(enumerate(values)), "number int, value binary").coalesce(1)


def test_every_version_in_the_columns_of_the_latest(
    spark: Any, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_REGISTRY_CREDENTIALS", "me:secret")
    encoders = [
        RegistryAvroEncoder(registry.url, schema=each, references=REFERENCES)
        for each in (FIRST, SECOND)
    ]
    value = {"page": "/", "user": {"id": 7}}
    values = [
        encoders[0].encode("clicks", {**value, "old": "x"}),
        encoders[1].encode("clicks", {**value, "count": 2}),
        b"\0\0\0\0\x63 of an unknown schema",
        b"text",
        None,
        encoders[1].encode("clicks", {"page": "/ü", "user": None})[:-1],
    ]
    df = frame_of(spark, values)
    decoded = decode_registry_avro(df, registry.url, subject="clicks-value")
    assert decoded.schema["decoded"].dataType.simpleString() == (
        "struct<page:string,user:struct<id:bigint>,count:int>"
    )
    # Registered after the start: the columns stay what they are.
    third = {**SECOND, "fields": [*SECOND["fields"], {"name": "n", "type": "int", "default": 3}]}
    late = RegistryAvroEncoder(registry.url, schema=third, references=REFERENCES)
    values.append(late.encode("clicks", {**value, "n": 4}))
    decoded = decode_registry_avro(
        frame_of(spark, values),
        registry.url,
        reader_schema={**SECOND, "fields": SECOND["fields"][::2]},
    )
    good, dead = split_dead_letters(decoded)
    assert [row.decoded.asDict() for row in good.orderBy("number").collect()] == [
        {"page": "/", "count": 1},
        {"page": "/", "count": 2},
        {"page": "/", "count": 1},
    ]
    reasons = [row.dead_letter for row in dead.orderBy("number").collect()]
    assert [reason[:33] for reason in reasons] == [
        f"schema registry {registry.url}"[:33],
        "the payload doesn't start with 0 ",
        "the value is null",
        "written with schema 3: not a valu",
    ]
    plan = good._jdf.queryExecution().toString()
    assert "secret" not in plan


def test_a_registry_that_is_out_of_reach_makes_no_dead_letters(
    spark: Any, registry: FakeRegistry
) -> None:
    """The task fails: its values may be good."""
    payload = RegistryAvroEncoder(registry.url, schema=USER).encode("users", {"id": 1})

    def refuse(handler: Any) -> None:
        handler._send(403, b"{}")

    registry.faults = [refuse] * 100
    decoded = decode_registry_avro(frame_of(spark, [payload]), registry.url, reader_schema=USER)
    with pytest.raises(Exception, match=r"schema registry http://.*: 403"):
        decoded.collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "reader_schema: expected either this or a subject"),
        ({"subject": "users", "reader_schema": USER}, "reader_schema: expected either this or a"),
        ({"reader_schema": {"type": "recrod"}}, "reader_schema: not an Avro schema"),
        ({"reader_schema": '"string"'}, "reader_schema: expected the schema of a record"),
        ({"subject": "either"}, "subject: u: a union of anything but null and one type is not"),
        ({"subject": "json"}, "subject: its latest schema is JSON, not Avro"),
    ],
)
def test_what_is_refused_while_planning(
    spark: Any, registry: FakeRegistry, options: dict[str, Any], message: str
) -> None:
    union = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}
    registry.add("either", json.dumps(union))
    registry.add("json", "{}", "JSON")
    df = spark.createDataFrame([], "value binary")
    with pytest.raises(ConfigError) as caught:
        decode_registry_avro(df, registry.url, **options)
    assert str(caught.value).startswith(message)


def test_wrong_registries(
    spark: Any, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = spark.createDataFrame([], "value binary")
    with pytest.raises(ConfigError, match="without a user, who goes into HERMES_REGISTRY_CRED"):
        decode_registry_avro(df, "http://me:secret@x", subject="users")
    with pytest.raises(UnknownSchemaError, match="Subject 'nothing' not found"):
        decode_registry_avro(df, registry.url, subject="nothing")
    monkeypatch.setattr("hermes.spark.decoding.registry_avro._SECONDS", 0.0)
    registry.faults = [503]
    with pytest.raises(RegistryUnavailableError):
        decode_registry_avro(df, registry.url, subject="users")
