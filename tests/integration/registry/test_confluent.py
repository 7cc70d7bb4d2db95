"""Confluent's client and serializers, unchanged, against the registry."""

import asyncio
import json
import re
import threading
from contextlib import suppress

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    AssociationCreateOrUpdateInfo,
    AssociationCreateOrUpdateRequest,
    ConfigCompatibilityLevel,
)
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hermes_testkit import BrokerProcess
from registry_server import served_registry


@pytest.fixture(scope="module", params=["in memory", "in a topic"])
def url(request, tmp_path_factory):
    """Where a registry is: one that is kept in memory, and a broker's."""
    if request.param == "in memory":
        with served_registry() as url:
            yield url
        return
    folder = tmp_path_factory.mktemp("registry")
    settings = {"log_dir": str(folder / "log"), "http_listen": "tcp:0:interface=127.0.0.1"}
    broker = BrokerProcess(folder / "broker", settings)
    try:
        (address,) = re.findall(r"HTTP on (127\.0\.0\.1:\d+)", "".join(broker.lines))
        yield f"http://{address}/registry"
    finally:
        broker.stop()


@pytest.fixture
def client(url):
    """Each test has subjects of its own; what goes for all is put back."""
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def record(*fields, name="Order", **more):
    fields = [each if isinstance(each, dict) else {"name": each, "type": "int"} for each in fields]
    return Schema(json.dumps({"type": "record", "name": name, "fields": fields, **more}))


def refused(code, call, *arguments, **options):
    with pytest.raises(SchemaRegistryError) as caught:
        call(*arguments, **options)
    assert caught.value.error_code == code
    assert caught.value.http_status_code == (code if code < 1000 else code // 100)
    return caught.value.error_message


NEW = {"name": "new", "type": "int", "default": 0}


def test_schemas_are_registered_and_found(client):
    first, second = record("a", name="Found"), record("a", NEW, name="Found")
    id_ = client.register_schema("found-value", first)
    assert client.register_schema("found-value", first) == id_
    assert client.register_schema("found-key", first) == id_
    full = client.register_schema_full_response("found-value", second)
    assert full.version == 2
    assert full.schema_id != id_
    client.clear_caches()

    assert json.loads(client.get_schema(id_).schema_str) == json.loads(first.schema_str)
    assert client.get_schema(id_, "found-value").schema_type == "AVRO"
    guid = client.get_version("found-value", 1).guid
    assert client.get_schema_by_guid(guid).schema_str == client.get_schema(id_).schema_str
    assert client.get_version("found-value", 1).schema_id == id_
    assert client.get_latest_version("found-value").version == 2
    assert client.get_version("found-value", "latest").version == 2
    assert client.get_versions("found-value") == [1, 2]
    assert client.get_versions("found-value", offset=1, limit=1) == [2]
    assert client.lookup_schema("found-value", second).version == 2
    assert client.get_subjects(subject_prefix="found-") == ["found-key", "found-value"]
    assert client.get_subjects("found-", offset=1) == ["found-value"]
    assert client.get_subjects_by_schema_id(id_) == ["found-key", "found-value"]
    pairs = client.get_schema_versions(id_)
    assert [(each.subject, each.version) for each in pairs] == [
        ("found-key", 1),
        ("found-value", 1),
    ]
    assert client.get_subjects_by_schema_id(id_, "found-key") == ["found-key"]
    assert client.get_schema_types() == ["JSON", "AVRO"]
    assert client.get_contexts() == ["."]


def test_what_is_not_there(client):
    client.register_schema("there", record("a"))
    assert refused(40401, client.get_latest_version, "nowhere") == "Subject 'nowhere' not found."
    refused(40401, client.get_versions, "nowhere")
    refused(40401, client.delete_subject, "nowhere")
    refused(40401, client.lookup_schema, "nowhere", record("a"))
    refused(40402, client.get_version, "there", 7)
    refused(40402, client.delete_version, "there", 7)
    refused(40402, client.test_compatibility, "there", record("a"), 7)
    refused(40403, client.lookup_schema, "there", record("b"))
    refused(40403, client.get_schema, 1_000_000)
    refused(40403, client.get_schema_by_guid, "00000000-0000-0000-0000-000000000000")
    refused(40408, client.get_config, "there")
    refused(40409, client.get_mode, "there")
    refused(42202, client.get_version, "there", "newest")


def test_what_is_wrong(client):
    at = refused(42201, client.register_schema, "wrong", record({"name": "a", "type": "integer"}))
    assert "at Order.a" in at
    assert "'integer' is not known" in at
    refused(42201, client.register_schema, "wrong", Schema("{"))
    refused(42201, client.register_schema, "wrong", Schema("{", "JSON"))
    refused(42201, client.register_schema, "wrong", Schema("message A {}", "PROTOBUF"))
    refused(42203, client.set_compatibility, "wrong", "SIDEWAYS")
    refused(42204, client.update_mode, "wrong", "SOMETIMES")
    refused(42208, client.register_schema, ":.context:wrong", record("a"))


def test_a_subject_with_any_characters(client):
    name = "a/b c?d=é&%2F"
    client.register_schema(name, record("a"))
    assert client.get_versions(name) == [1]
    assert client.get_subjects(subject_prefix="a/b") == [name]


@pytest.mark.parametrize(
    ("level", "adding", "removing", "adding_optional"),
    [
        ("NONE", True, True, True),
        ("BACKWARD", False, True, True),
        ("BACKWARD_TRANSITIVE", False, True, True),
        ("FORWARD", True, False, True),
        ("FORWARD_TRANSITIVE", True, False, True),
        ("FULL", False, False, True),
        ("FULL_TRANSITIVE", False, False, True),
    ],
)
def test_compatibility(client, level, adding, removing, adding_optional):
    subject = f"compatible-{level}"
    client.register_schema(subject, record("a", "b"))
    assert client.set_compatibility(subject, level)["compatibility"] == level
    assert client.get_compatibility(subject) == level
    for candidate, expected in (
        (record("a", "b", "c"), adding),
        (record("a"), removing),
        (record("a", "b", NEW), adding_optional),
    ):
        assert client.test_compatibility(subject, candidate) is expected
        assert client.test_compatibility(subject, candidate, 1) is expected
        assert client.test_compatibility_all_versions(subject, candidate) is expected
    if not adding:
        reason = refused(409, client.register_schema, subject, record("a", "b", "c"))
        assert "Order.c: the field is not in what was written, and has no default" in reason
        assert level in reason


def test_only_a_transitive_level_looks_at_all_versions(client):
    client.set_compatibility("chain", "NONE")
    client.register_schema("chain", record("a"))
    client.register_schema("chain", record("a", "b"))
    client.set_compatibility("chain", "BACKWARD")
    assert client.test_compatibility_all_versions("chain", record("b"))
    client.set_compatibility("chain", "BACKWARD_TRANSITIVE")
    assert not client.test_compatibility_all_versions("chain", record("b"))


def test_settings_of_all_go_for_subjects_without_their_own(client):
    try:
        client.register_schema("by-all", record("a"))
        assert client.get_compatibility() == "BACKWARD"
        client.set_compatibility(level="full")
        assert not client.test_compatibility("by-all", record("b"))
        config = ServerConfig(compatibility=ConfigCompatibilityLevel.NONE)
        assert client.set_config("by-all", config)["compatibility"] == "NONE"
        assert client.get_config("by-all").compatibility_level == "NONE"
        assert client.test_compatibility("by-all", record("b"))
        assert client.delete_config("by-all").compatibility_level == "NONE"
        refused(40401, client.delete_config, "by-all")
        assert not client.test_compatibility("by-all", record("b"))
    finally:
        client.delete_config()
    assert client.get_config().compatibility_level == "BACKWARD"


def test_modes(client):
    try:
        assert client.get_global_mode() == "READWRITE"
        assert client.update_mode("read", "READONLY") == "READONLY"
        assert client.get_mode("read") == "READONLY"
        refused(42205, client.register_schema, "read", record("a"))
        assert client.delete_mode("read") == "READONLY"
        id_ = client.register_schema("read", record("a"))
        client.update_global_mode("READONLY")
        assert client.register_schema("read", record("a")) == id_  # it is there already
        refused(42205, client.delete_subject, "read")
        refused(42205, client.update_global_mode, "IMPORT")
    finally:
        client.update_global_mode("READWRITE")
    refused(42205, client.update_mode, "read", "IMPORT")
    assert client.update_mode("read", "IMPORT", force=True) == "IMPORT"
    refused(42205, client.register_schema, "read", record("a", "b"))


def test_deleting_softly_and_for_good(client):
    first, second = record("a", name="Deleted"), record("a", NEW, name="Deleted")
    id_ = client.register_schema("deleted", first)
    client.register_schema("deleted", second)
    refused(40407, client.delete_version, "deleted", 1, permanent=True)
    assert client.delete_version("deleted", 1) == 1
    refused(40406, client.delete_version, "deleted", 1)
    assert client.get_versions("deleted") == [2]
    assert client.get_versions("deleted", deleted=True) == [1, 2]
    assert client.get_versions("deleted", deleted_only=True) == [1]
    refused(40402, client.get_version, "deleted", 1)
    assert client.get_version("deleted", 1, deleted=True).schema_id == id_
    client.clear_caches()
    assert client.get_schema(id_).schema_str  # readers of older data still need it
    assert client.register_schema("deleted", first) == id_
    assert client.get_versions("deleted") == [2, 3]

    refused(40405, client.delete_subject, "deleted", permanent=True)
    assert client.delete_subject("deleted") == [2, 3]
    refused(40404, client.delete_subject, "deleted")
    assert "deleted" not in client.get_subjects()
    assert "deleted" in client.get_subjects(deleted=True)
    assert "deleted" in client.get_subjects(deleted_only=True)
    assert client.delete_subject("deleted", permanent=True) == [1, 2, 3]
    client.clear_caches()
    refused(40403, client.get_schema, id_)
    assert client.register_schema("deleted", first) > id_ + 1  # never given out twice


def test_references(client):
    item = Schema('{"type": "record", "name": "Item", "namespace": "shop", "fields": []}')
    item_id = client.register_schema("item", item)
    order = Schema(
        json.dumps(
            {
                "type": "record",
                "name": "Order",
                "namespace": "shop",
                "fields": [{"name": "items", "type": {"type": "array", "items": "shop.Item"}}],
            }
        ),
        references=[SchemaReference("shop.Item", "item", 1)],
    )
    order_id = client.register_schema("order", order)
    assert client.get_referenced_by("item", 1) == [order_id]
    assert client.get_referenced_by("order") == []
    client.clear_caches()
    assert client.get_schema(order_id).references == order.references
    assert client.lookup_schema("order", order).schema_id == order_id
    refused(42206, client.delete_version, "item", 1)
    refused(42206, client.delete_subject, "item")
    lost = Schema(order.schema_str, references=[SchemaReference("shop.Item", "item", 9)])
    assert "'item' has no version 9" in refused(42201, client.register_schema, "lost", lost)

    client.delete_subject("order")
    client.delete_subject("item")
    refused(42206, client.delete_subject, "item", permanent=True)
    client.delete_subject("order", permanent=True)
    assert client.delete_subject("item", permanent=True) == [1]
    assert item_id


def test_metadata(client):
    for owner in ("ann", "bob"):
        metadata = Metadata(None, MetadataProperties({"owner": owner, "a b": "é/&"}), None)
        name = f"Of{owner.title()}"
        schema = Schema(record("a", name=name).schema_str, metadata=metadata)
        client.set_compatibility("described", "NONE")
        client.register_schema("described", schema)
    found = client.get_latest_with_metadata("described", {"owner": "ann", "a b": "é/&"})
    assert found.version == 1
    assert found.schema.metadata.properties.properties["owner"] == "ann"
    refused(40403, client.get_latest_with_metadata, "described", {"owner": "eve"})


def test_associations(client):
    request = AssociationCreateOrUpdateRequest(
        "clicks", "lkc-1", "lkc-1:clicks", "topic", [AssociationCreateOrUpdateInfo("all", "value")]
    )
    assert client.create_association(request).associations[0].subject == "all"
    (found,) = client.get_associations_by_resource_name("clicks", "-", "topic", ["value"])
    assert (found.subject, found.resource_id) == ("all", "lkc-1:clicks")
    assert client.get_associations_by_resource_name("clicks", "lkc-2") == []
    serialize = AvroSerializer(client, record("a").schema_str)
    serialize({"a": 1}, SerializationContext("clicks", MessageField.VALUE))
    assert client.get_versions("all") == [1]
    client.delete_associations("lkc-1:clicks")
    assert client.get_associations_by_resource_name("clicks", "-") == []


def test_avro_end_to_end_with_evolution(url):
    context = SerializationContext("avro-topic", MessageField.VALUE)
    old, new = record("a", name="Evolving"), record("a", NEW, name="Evolving")
    with SchemaRegistryClient({"url": url}) as writing:
        data = AvroSerializer(writing, old.schema_str)({"a": 1}, context)
        newer = AvroSerializer(writing, new.schema_str)({"a": 2, "new": 3}, context)
    with SchemaRegistryClient({"url": url}) as reading:
        assert AvroDeserializer(reading)(data, context) == {"a": 1}
        with_new = AvroDeserializer(reading, new.schema_str)
        assert [with_new(each, context) for each in (data, newer)] == [
            {"a": 1, "new": 0},
            {"a": 2, "new": 3},
        ]
        assert AvroDeserializer(reading, old.schema_str)(newer, context) == {"a": 2}


def test_serializers_that_register_nothing(client):
    context = SerializationContext("settled", MessageField.VALUE)
    schema, newer = record("a", name="Settled"), record("a", NEW, name="Settled")
    careful = {"auto.register.schemas": False}
    with pytest.raises(SchemaRegistryError):
        AvroSerializer(client, schema.schema_str, conf=careful)({"a": 1}, context)
    ids = [client.register_schema("settled-value", each) for each in (schema, newer)]
    spaced = json.dumps(json.loads(schema.schema_str), indent=4)
    for conf, id_ in (
        (careful, ids[0]),
        ({**careful, "normalize.schemas": True}, ids[0]),
        ({**careful, "use.latest.version": True}, ids[1]),
        ({**careful, "use.schema.id": ids[1]}, ids[1]),
    ):
        value = {"a": 1, "new": 2} if id_ == ids[1] else {"a": 1}
        data = AvroSerializer(client, spaced, conf=conf)(value, context)
        assert data[:5] == b"\0" + id_.to_bytes(4, "big")
        assert AvroDeserializer(client)(data, context) == value
    assert client.get_versions("settled-value") == [1, 2]


def test_the_asynchronous_client(url):
    async def use():
        async with AsyncSchemaRegistryClient({"url": url}) as client:
            id_ = await client.register_schema("async", record("a", name="Async"))
            await client.set_compatibility("async", "FULL")
            assert (await client.get_schema(id_)).schema_type == "AVRO"
            assert (await client.get_latest_version("async")).schema_id == id_
            assert await client.get_compatibility("async") == "FULL"
            assert not await client.test_compatibility("async", record("b", name="Async"))

    asyncio.run(use())


def test_avro_end_to_end_with_references(client):
    client.register_schema(
        "address",
        Schema('{"type":"record","name":"Address","fields":[{"name":"zip","type":"int"}]}'),
    )
    schema = Schema(
        record({"name": "home", "type": "Address"}, name="Person").schema_str,
        references=[SchemaReference("Address", "address", 1)],
    )
    context = SerializationContext("people", MessageField.VALUE)
    value = {"home": {"zip": 1234}}
    data = AvroSerializer(client, schema)(value, context)
    assert AvroDeserializer(client, schema)(data, context) == value


def test_json_schema_end_to_end(client):
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Click",
        "type": "object",
        "properties": {"page": {"type": "string"}},
    }
    text = json.dumps(schema, indent=2)
    context = SerializationContext("json-topic", MessageField.VALUE)
    data = JSONSerializer(text, client)({"page": "/"}, context)
    assert JSONDeserializer(text, schema_registry_client=client)(data, context) == {"page": "/"}
    client.clear_caches()
    assert client.get_latest_version("json-topic-value").schema.schema_str == text  # as it is
    changed = Schema(json.dumps({**schema, "title": "Other"}), "JSON")
    reason = refused(409, client.register_schema, "json-topic-value", changed)
    assert "set the compatibility to NONE" in reason
    client.set_compatibility("json-topic-value", "NONE")
    client.register_schema("json-topic-value", changed)
    assert client.get_versions("json-topic-value") == [1, 2]


def test_registrations_at_the_same_time_get_one_id(url):
    schema, begin = record("a", name="Together"), threading.Barrier(20)
    ids = []

    def register(number):
        with SchemaRegistryClient({"url": url}) as client:
            begin.wait()
            ids.append(client.register_schema(f"together-{number % 2}", schema))

    threads = [threading.Thread(target=register, args=[number]) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 20
    assert len(set(ids)) == 1


def test_a_client_that_goes_away_harms_nothing(url):
    import http.client
    from urllib.parse import urlsplit

    for _ in range(5):
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        connection.putrequest("POST", "/registry/subjects/gone/versions")
        connection.putheader("Content-Length", "100000")
        connection.endheaders(b'{"schema": "')
        connection.close()
    with SchemaRegistryClient({"url": url}) as client, suppress(SchemaRegistryError):
        client.get_versions("gone")
