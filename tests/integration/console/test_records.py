"""Pages with messages whose schemas a registry has: read, searched, and said when they can't be."""

import html
import re
from typing import Any

import pytest
from fake_registry import fake_registry

from hermes.client import Producer, ProducerConfig, ProducerData
from hermes.console import Access, Address, Cluster, Console, Records
from hermes.console.asking import Ask
from hermes.plugins.encoders.avro_registry import RegistryAvroEncoder
from hermes.testing import running_broker

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "user", "type": "string"}]}


def shown(console: Console, page: str, **query: Any) -> str:
    """What is to be read on a topic's page."""
    given = {name.rstrip("_"): str(value) for name, value in query.items()}
    answer = console.answer(Ask("GET", ("topics", "records", page), given))
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
            cluster = Cluster(Address("127.0.0.1", broker.port))
            return Console(cluster, Access(None), lambda: False, Records(registry.url))

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


def test_a_wrong_url() -> None:
    with pytest.raises(Exception, match="registry: 'ftp://x' is not a URL"):
        Records("ftp://x")
