"""Pages with messages whose schemas a registry has: read, searched, and said when they can't be."""

import html
import json
import re
from typing import Any

import pytest
from fake_registry import fake_registry

from hermes.client import (
    FetchRequest,
    Producer,
    ProducerConfig,
    ProducerData,
    SimpleConsumer,
)
from hermes.config.addresses import BrokerAddress
from hermes.console import Access, ClusterClient, Console, RegistryRecords
from hermes.console.page_request import PageRequest
from hermes.plugins.encoders.avro_registry import RegistryAvroEncoder
from hermes.schemas import RegistryClient
from hermes.testing import running_broker

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "user", "type": "string"}],
}


def shown(console: Console, page: str, **query: Any) -> str:
    """What is to be read on a topic's page."""
    given = {name.rstrip("_"): str(value) for name, value in query.items()}
    answer = console.answer(PageRequest("GET", ("topics", "records", page), given))
    assert answer.status == 200
    pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
    main = b"".join(pieces).decode().partition("<main")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main.replace("<wbr>", ""))).split())


def test_records_are_read_and_searched() -> None:
    with running_broker(settings={"num_partitions": 1}) as broker, fake_registry() as registry:
        config = ProducerConfig(
            broker_list=f"0:127.0.0.1:{broker.port}",
            acks="flushed",
            encoder=RegistryAvroEncoder(registry.url, schema=SCHEMA),
        )
        with Producer(config) as producer:
            for user in ("Ann", "Bob"):
                producer.send(ProducerData("records", {"user": user}))

        def console() -> Console:
            cluster = ClusterClient(BrokerAddress("127.0.0.1", broker.port))
            return Console(cluster, Access(None), lambda: False, RegistryRecords(registry.url))

        looking = console()
        assert all(f'{{"user": "{user}"}}' in shown(looking, "messages") for user in ("Ann", "Bob"))
        assert '{"user": "Bob"}' in shown(looking, "live")
        found = shown(looking, "messages", field="user", q="Bob", as_="avro")
        assert '{"user": "Bob"}' in found
        assert '{"user": "Ann"}' not in found
        assert f"--registry {registry.url}" in found
        assert '{ "user": "Ann" }' in shown(looking, "message", partition="0-0", offset=0)
        looking.close()

        registry.faults = [503] * 100
        lost = console()
        assert "503: told to" in shown(lost, "message", offset=0)
        # A search must not pretend that there is nothing.
        missed = shown(lost, "messages", field="user", q="Bob")
        assert "partition 0: schema registry" in missed
        lost.close()


def test_a_record_is_produced_by_a_version_of_a_subject() -> None:
    with running_broker(settings={"num_partitions": 1}) as broker, fake_registry() as registry:
        client = RegistryClient(registry.url)
        newer = {
            **SCHEMA,
            "fields": [*SCHEMA["fields"], {"name": "n", "type": "int", "default": 7}],
        }
        for schema in (SCHEMA, newer):
            client.register("users", json.dumps(schema))
        cluster = ClusterClient(BrokerAddress("127.0.0.1", broker.port))
        access = Access(None)
        console = Console(cluster, access, lambda: True, RegistryRecords(registry.url))
        with SimpleConsumer("127.0.0.1", broker.port) as consumer:
            consumer.create_topic("records")

            def post(**form: str) -> Any:
                cookies = {"hermes_session": "s" * 43}
                form = {"csrf": access.token("s" * 43), "value": "avro", "subject": "users", **form}
                path = ("topics", "records", "produce")
                return console.answer(PageRequest("POST", path, form=form, cookies=cookies))

            form = console.answer(PageRequest("GET", ("topics", "records", "produce"))).body
            assert b'<option value="users">' in form
            assert post(payload='{"user": "Ann"}', version="1").status == 303
            assert post(payload='{"user": "Bob", "n": 8}').status == 303
            fetched = consumer.fetch(FetchRequest("records", 0, 0, 1 << 20))
            payloads = [message.payload for message, _ in fetched]
        ids = [client.version("users", number).schema_id for number in (1, 2)]
        framed = [b"\0" + each.to_bytes(4) for each in ids]
        assert payloads == [framed[0] + b"\x06Ann", framed[1] + b"\x06Bob\x10"]
        assert '{"user": "Bob", "n": 8}' in shown(console, "messages")
        for wrong, field in (
            ({"payload": "{}"}, "payload"),
            ({"payload": '{"user": 1}'}, "payload"),
            ({"payload": '{"user": "Ann", "x": 1}'}, "payload"),
            ({"payload": "[" * 9_000}, "payload"),
            ({"payload": "{}", "subject": ""}, "subject"),
            ({"payload": "{}", "subject": "<b>none/.."}, "subject"),
            ({"payload": "{}", "version": "3"}, "subject"),
        ):
            answer = post(**wrong)
            assert (answer.status, f'id="{field}-error"' in answer.body.decode()) == (400, True)
            assert "<b>" not in answer.body.decode()
        registry.faults = [503] * 100
        assert "503: told to" in post(payload='{"user": "Ann"}').body.decode()
        console.close()
        client.close()


def test_a_wrong_url() -> None:
    with pytest.raises(Exception, match="registry: 'ftp://x' is not a URL"):
        RegistryRecords("ftp://x")
