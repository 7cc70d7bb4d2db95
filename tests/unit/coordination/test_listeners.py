"""The node with a broker's listeners: what is written, and what is read of what others wrote."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.coordination.listeners import (
    BrokerListeners,
    ListenerNode,
    format_listeners,
    listeners_path,
    parse_listeners,
)
from hermes.errors import InvalidNodeError

PLAIN = ListenerNode("0", "localhost", 9092, False, "none")
OUTSIDE = ListenerNode("outside", "kafka1.example.org", 9094, True, "scram")
HTTP = ListenerNode("0", "::1", 9093, True, "tls")
PATH = "/hermes/brokers/7"


def read(value: object) -> BrokerListeners:
    return parse_listeners(PATH, json.dumps(value).encode())


def test_it_is_json() -> None:
    assert listeners_path(7) == PATH
    written = format_listeners(BrokerListeners((PLAIN, OUTSIDE), (HTTP,)))
    assert json.loads(written) == {
        "listeners": [
            {
                "name": "0",
                "host": "localhost",
                "port": 9092,
                "tls": False,
                "authentication": "none",
            },
            {
                "name": "outside",
                "host": "kafka1.example.org",
                "port": 9094,
                "tls": True,
                "authentication": "scram",
            },
        ],
        "http": [{"name": "0", "host": "::1", "port": 9093, "tls": True, "authentication": "tls"}],
    }
    assert parse_listeners(PATH, written) == BrokerListeners((PLAIN, OUTSIDE), (HTTP,))


def test_a_broker_says_that_it_can_have_copies_and_where_it_stands():
    listeners = BrokerListeners((PLAIN,), (), (PLAIN,), replication=True, rack="zone-1")

    written = json.loads(format_listeners(listeners))

    assert (written["replication"], written["rack"]) == (1, "zone-1")
    assert parse_listeners(PATH, json.dumps(written).encode()) == listeners


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({}, (False, "")),
        ({"replication": 2}, (True, "")),
        ({"replication": True, "rack": 1}, (False, "")),
        ({"replication": "1", "rack": "r" * 256}, (False, "")),
    ],
)
def test_of_what_it_does_not_understand_nothing_is_taken(written, read):
    found = parse_listeners(PATH, json.dumps({"listeners": [], **written}).encode())

    assert (found.replication, found.rack) == read


def test_where_kafkas_current_clients_connect_stands_beside_the_others():
    kafka = PLAIN._replace(port=9292)
    listeners = BrokerListeners((PLAIN,), (), (kafka,))

    written = format_listeners(listeners)

    assert json.loads(written)["kafka"] == [kafka._asdict()]
    assert parse_listeners(PATH, written) == listeners
    assert listeners.matching(PLAIN) == PLAIN
    assert listeners.matching_kafka(PLAIN) == kafka
    assert BrokerListeners((PLAIN,)).matching_kafka(PLAIN) is None


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {},
        {**PLAIN._asdict(), "host": ""},
        {**PLAIN._asdict(), "host": "a b"},
        {**PLAIN._asdict(), "host": "x" * 256},
        {**PLAIN._asdict(), "host": 7},
        {**PLAIN._asdict(), "port": 0},
        {**PLAIN._asdict(), "port": 65536},
        {**PLAIN._asdict(), "port": True},
        {**PLAIN._asdict(), "port": "9092"},
        {**PLAIN._asdict(), "tls": "yes"},
        {**PLAIN._asdict(), "tls": None},
        {**PLAIN._asdict(), "name": None},
        {**PLAIN._asdict(), "authentication": ""},
    ],
)
def test_one_that_is_not_understood_costs_itself_alone(wrong: object) -> None:
    assert read({"listeners": [wrong, OUTSIDE._asdict()]}).listeners == (OUTSIDE,)


def test_what_a_later_release_says_is_read_as_far_as_it_goes() -> None:
    later = {**OUTSIDE._asdict(), "authentication": "oauth", "zone": "b"}
    found = read({"listeners": [later], "http": [], "rack": 3})
    assert found.listeners == (OUTSIDE._replace(authentication="oauth"),)


def test_there_are_never_very_many() -> None:
    assert len(read({"listeners": [PLAIN._asdict()] * 1000}).listeners) == 64


@pytest.mark.parametrize(
    "value", [b"", b"{", b"7", b"null", b"[]", b"{}", b'{"listeners": 7}', b"\xff", b"[" * 9999]
)
def test_what_is_something_else_is_named(value: bytes) -> None:
    with pytest.raises(InvalidNodeError, match=f"^{PATH}: expected listeners as JSON, got "):
        parse_listeners(PATH, value)


@given(st.binary(max_size=300))
def test_anything_is_read_or_named(value: bytes) -> None:
    with suppress(InvalidNodeError):
        parse_listeners(PATH, value)


def test_which_of_another_broker_is_alike() -> None:
    tls = ListenerNode("1", "b", 1, True, "scram")
    other = ListenerNode("2", "b", 2, True, "scram")
    renamed = ListenerNode("outside", "b", 3, True, "tls")
    assert BrokerListeners((PLAIN, tls, other)).matching(OUTSIDE) == tls  # the first with its rules
    assert (
        BrokerListeners((PLAIN, tls, renamed)).matching(OUTSIDE) == renamed
    )  # its given name first
    assert BrokerListeners((PLAIN, tls, other)).matching(other) == other  # places break ties
    assert BrokerListeners((tls, PLAIN)).matching(PLAIN) == PLAIN  # and no more than that
    assert BrokerListeners((PLAIN,)).matching(OUTSIDE) is None
