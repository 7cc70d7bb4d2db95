"""The pages of a registry's schemas where these were changed, or the registry doesn't tell all."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest
from fake_registry import fake_registry

from hermes.console import RegistryRecords
from hermes.schemas import RegistryClient, SchemaReference
from hermes.testing import RunningBroker, running_broker

from .test_pages import Pages, text


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={"http_listen": "tcp:0:interface=127.0.0.1"}) as running:
        yield running


@contextmanager
def pages_of(broker: RunningBroker, url: str) -> Iterator[Pages]:
    pages = Pages(broker, RegistryRecords(url))  # type: ignore[no-untyped-call]
    yield pages
    pages.console.close()


@pytest.fixture
def pages(broker: RunningBroker) -> Iterator[Pages]:
    with pages_of(broker, f"{broker.http}/registry") as made:
        yield made


Register = Callable[..., int]


@pytest.fixture
def register(broker: RunningBroker) -> Register:
    def one(*arguments: Any, **more: Any) -> int:
        client = RegistryClient(f"{broker.http}/registry")  # another remembers nothing
        try:
            return client.register(*arguments, **more)
        finally:
            client.close()

    return one


def ask(broker: RunningBroker, method: str, path: str, **body: object) -> None:
    data = json.dumps(body).encode() if body else None
    urlopen(Request(f"{broker.http}/registry{path}", data, method=method)).close()


def test_a_subject_that_was_deleted_for_good_shows_what_its_numbers_mean_now(
    broker: RunningBroker, pages: Pages, register: Register
) -> None:
    register("passing", '"int"')
    assert '"int"' in text(pages("schemas", "passing", version=1))
    for query in ("", "?permanent=true"):
        ask(broker, "DELETE", f"/subjects/passing{query}")
    assert pages.answer("schemas", "passing").status == 404
    register("passing", '"double"')
    shown = text(pages("schemas", "passing", version=1))
    assert ('"double"' in shown, '"int"' in shown) == (True, False)


def test_a_deleted_version_that_is_referred_to_is_shown_as_deleted(
    broker: RunningBroker, pages: Pages, register: Register
) -> None:
    for symbols in (["A"], ["A", "B"]):
        register("kind", {"type": "enum", "name": "Kind", "symbols": symbols})
    referring = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "Kind"}]}
    references = [SchemaReference("Kind", "kind", 2)]
    register("referring", referring, references=references)
    assert 'href="/schemas/kind?version=2"' in pages("schemas", "referring")
    ask(broker, "DELETE", "/subjects/kind/versions/1")
    page = pages("schemas", "kind", version=1)
    assert "This version was deleted" in text(page)
    assert "<option selected>1</option>" in page
    newest = pages("schemas", "kind", version=0)
    assert "Version 2 1 version in all" in text(newest)
    assert "deleted" not in text(newest)
    assert '+ "B"' in text(pages("schemas", "kind", against=1))


def test_a_subject_with_settings_but_no_level_has_the_registrys(
    broker: RunningBroker, pages: Pages, register: Register
) -> None:
    register("levelled", '"int"')
    ask(broker, "PUT", "/config/levelled", normalize=True)
    assert "Compatibility BACKWARD" in text(pages("schemas", "levelled"))
    ask(broker, "PUT", "/config/levelled", compatibility="FULL")
    assert "Compatibility FULL" in text(pages("schemas", "levelled"))


def test_a_registry_that_keeps_its_settings_to_itself_still_shows_schemas(
    broker: RunningBroker,
) -> None:
    with fake_registry() as registry:
        registry.add("kept", 'syntax = "proto3";\nmessage M {}', "PROTOBUF")
        with pages_of(broker, registry.url) as pages:
            answered = [b"[1]", json.dumps(registry._version("kept", 1)).encode()]
            registry.faults = [*answered, 403]
            shown = text(pages("schemas", "kept"))
            assert "Compatibility unknown" in shown
            assert "message M {}" in shown
            registry.faults = [503]
            assert pages.answer("schemas", "kept").status == 502
